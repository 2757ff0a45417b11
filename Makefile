# A thin front for CMake and CTest; `make help` lists every target.

JOBS ?= $(shell nproc)
SANITIZERS := asan ubsan tsan
PORTS := aarch64 musl
# Bytes of a page as the emulator tells the programs of aarch64.
PAGE_SIZES := 4096 16384 65536
# With larger pages: the tests on the real system; those on the simulated one have pages of their
# own. Nor is a profile's table of size classes taken there.
EMULATED_TESTS = $$([ $$bytes = 4096 ] || echo --tests-regex '^(ports|model|unit_os_(fake|linux)|concurrency)' --exclude-regex profile)
PYTHON := build/venv/bin/python
coverage_tests := ^(unit_|config_|model\.internal|concurrency|guarded|api\.|misuse\.|limits\.(rlimit|mappings|locked)|faults\.sandbox|cli)
prefix ?= /usr/local

# ON: tests as long as each flavour has time for, and with internal checks those of misuse, limits and faults too.
LONG_TESTS ?= OFF
# What a flavour neither builds nor runs (HAKMEM_TESTS_WITHOUT). Built by clang: the core's own tests and tests/abi are left.
debug_without = ^(apps|stress|cli$(if $(filter OFF,$(LONG_TESTS)),|misuse|limits|faults))$$
clang_without = ^([^a]|a[^b])
# One test more than processors: some of them wait.
TESTS_AT_ONCE = $$(( $(JOBS) + 1 ))

# What was configured in another place, before the tree was moved or in a container, is configured anew.
fresh = $$(tree=$$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' build/$(1)/CMakeCache.txt 2>/dev/null); \
    [ -z "$$tree" ] || [ "$$tree" -ef . ] || echo --fresh)
configure = cmake --preset $(1) $(fresh) $(2) >build/$(1).configure.log || { cat build/$(1).configure.log; \
    echo "make: scripts/setup installs what building needs (Debian packages in scripts/packages.txt)" >&2; exit 1; }
# What is changed while a build runs may be in the objects that are made then or not, and they are newer: they are made again.
# The time of .built is when the last build that succeeded began: `hakmem run` goes by it (tools/hakmem/build.py).
build = { [ ! -e build/$(1).began ] || find src include -name '[a-z]*' -type f -newer build/$(1).began \
        -exec find build/$(1) -name '*.o' -newer {} -delete \; ; \
    touch build/$(1).began && cmake --build build/$(1) --parallel $(JOBS) $(2) && \
    touch -r build/$(1).began build/$(1).built; }
# A test that takes longer hangs. On a machine that five others keep busy the slowest takes a third of that.
TEST_SECONDS = $(if $(filter ON,$(LONG_TESTS)),7200,900)
ctest = ctest --test-dir build/$(1) --output-on-failure --no-tests=error --timeout $(TEST_SECONDS) $(2)

.DEFAULT_GOAL := lib

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build:
	@mkdir -p build

.PHONY: lib
lib: | build ## Build the release into build/release: libhakmem.so, libhakmem.a, headers, packages
	@$(call configure,release)
	@$(call build,release,--target hakmem --target hakmem_static)

.PHONY: setup
setup: ## Install what the tests need (Debian packages, Python packages into build/venv)
	@scripts/setup

.PHONY: check
check: setup | build ## Seconds, once all is installed: build, unit tests and the repository's own rules
	@$(call configure,release,-DHAKMEM_TESTS=ON)
	@$(call build,release)
	@$(call ctest,release,--label-regex quick --parallel $(JOBS))

.PHONY: test
test: setup tidy | build ## 25 to 45 minutes: the rules first, then every flavour, long tests shortened; what CI runs
	@for flavour in release debug $(SANITIZERS) clang fuzz $(PORTS); do \
	    echo "== build $$flavour"; \
	    case $$flavour in debug) without='$(debug_without)' ;; clang) without='$(clang_without)' ;; *) without= ;; esac; \
	    $(call configure,$$flavour,-DHAKMEM_TESTS=ON -DHAKMEM_LONG_TESTS=$(LONG_TESTS) "-DHAKMEM_TESTS_WITHOUT=$$without") && $(call build,$$flavour) >build/$$flavour.build.log 2>&1 || \
	        { tail -n 60 build/$$flavour.build.log; exit 1; }; \
	done
	@failed=; \
	run() { echo "== test $$1"; flavour=$$1; shift; \
	    $(call ctest,$$flavour,--parallel $(TESTS_AT_ONCE) "$$@") || failed="$$failed $$flavour"; }; \
	run release; \
	run debug; \
	for flavour in $(SANITIZERS); do run $$flavour; done; \
	run clang --label-regex 'quick|unit'; \
	run fuzz; \
	run musl; \
	for bytes in $(PAGE_SIZES); do export QEMU_PAGESIZE=$$bytes; run aarch64 $(EMULATED_TESTS); done; \
	[ -z "$$failed" ] || { echo "make test: failed:$$failed" >&2; exit 1; }

.PHONY: test-long
test-long: ## As long as each flavour has time for, and more with internal checks: before a release
	@$(MAKE) test LONG_TESTS=ON

.PHONY: ports
ports: setup | build ## Build for aarch64 and for musl, and run their tests
	@for port in $(PORTS); do $(call configure,$$port,-DHAKMEM_TESTS=ON) && $(call build,$$port) || exit 1; done
	@$(call ctest,musl,--parallel $(JOBS))
	@for bytes in $(PAGE_SIZES); do export QEMU_PAGESIZE=$$bytes; \
	    $(call ctest,aarch64,--parallel $(JOBS) $(EMULATED_TESTS)) || exit 1; \
	done

.PHONY: stress
stress: setup | build ## The stress tests alone, as shipped and with internal checks
	@for flavour in release debug; do \
	    $(call configure,$$flavour,-DHAKMEM_TESTS=ON) && $(call build,$$flavour) && \
	    $(call ctest,$$flavour,--label-regex stress) || exit 1; \
	done

.PHONY: misuse-board
misuse-board: setup | build ## Measure hakmem and all installed allocators under misuse; rewrites docs/MISUSE.md
	@$(call configure,release,-DHAKMEM_TESTS=ON)
	@$(call build,release)
	@$(PYTHON) tests/misuse/board.py --all --write --library build/release/libhakmem.so \
	    --programs build/release/tests/misuse/programs

.PHONY: top-cost
top-cost: setup lib ## Measure what ten looks of `hakmem top` a second cost a process, in pairs (PAIRS=40)
	@$(PYTHON) tests/top/cost.py --library build/release/libhakmem.so --pairs $(or $(PAIRS),40)

.PHONY: stress-long
stress-long: setup | build ## 100,000 threads, and MINUTES=30 of forks under load with a watchdog
	@$(call configure,release,-DHAKMEM_TESTS=ON -DHAKMEM_STRESS_MINUTES=$(or $(MINUTES),30))
	@$(call build,release,--target stress_long)

.PHONY: fuzz
fuzz: setup | build ## Look for new inputs that break the allocator or its parsers (MINUTES=10, all targets together)
	@$(call configure,fuzz,-DHAKMEM_TESTS=ON)
	@$(call build,fuzz)
	@$(PYTHON) tests/fuzz/fuzz.py --build build/fuzz/tests/fuzz search --minutes $(or $(MINUTES),10)

.PHONY: sweep
sweep: setup lib ## Some 30 minutes: 87 programs of Debian and 36 of PyPI on glibc and in each mode, which must not differ; those that are installed
	@scripts/setup --sweep || echo "make sweep: goes on without the packages from PyPI" >&2
	@$(PYTHON) tests/sweep/sweep.py

.PHONY: odds
odds: setup | build ## Programs that check their blocks, under random options and in hostile surroundings (RUNS=200 SEED=1)
	@for flavour in release debug; do \
	    $(call configure,$$flavour,-DHAKMEM_TESTS=ON) && $(call build,$$flavour) || exit 1; \
	done
	@$(PYTHON) tests/odds/odds.py --flavours release,debug --runs $(or $(RUNS),200) --seed $(or $(SEED),1)

.PHONY: fault-matrix
fault-matrix: setup | build ## Make each system call fail in turn, in every mode; rewrites docs/FAULTS.md (STRIDE=1)
	@$(call configure,release,-DHAKMEM_TESTS=ON)
	@$(call build,release)
	@$(PYTHON) tests/faults/matrix.py --build build/release --stride $(or $(STRIDE),1)

.PHONY: coverage
coverage: setup | build ## Lines and branches that unit, conformance, misuse and limit tests reach, per layer
	@$(call configure,coverage,-DHAKMEM_TESTS=ON)
	@$(call build,coverage)
	@find build/coverage -name '*.gcda' -delete
	@$(call ctest,coverage,--parallel $(JOBS) --tests-regex '$(coverage_tests)') >build/coverage.log || \
	    { echo "Not passed by the instrumented library:"; sed -n '/tests FAILED:/,/^Errors/p' build/coverage.log; }
	@$(PYTHON) tests/support/coverage.py build/coverage --missing

.PHONY: tidy
tidy: setup | build ## A minute: the repository's own rules, clang-tidy, ruff and mypy
	@echo "== tidy"
	@$(call configure,release)
	@$(PYTHON) tools/tidy/tidy.py --all

.PHONY: format
format: setup ## Rewrite C and Python files in the project's format
	@git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cc' | xargs -r clang-format-14 -i
	@build/venv/bin/ruff format --quiet .

.PHONY: docs
docs: ## Derive docs/OPTIONS.md and the manual pages from the tables in src/config
	@python3 tools/gen_docs.py

.PHONY: bench
bench: lib ## Measure against the allocators installed here
	@./hakmem bench --quick

.PHONY: bench-programs
bench-programs: setup | build ## Test the benchmark's real programs, also those that only `hakmem bench setup` installs
	@scripts/setup --bench
	@$(call configure,release,-DHAKMEM_TESTS=ON)
	@$(call build,release)
	@$(call ctest,release,-C programs --label-regex bench-programs)

# By the environment, so that no character in a directory's name means anything to the shell.
install uninstall: export install_prefix = $(or $(prefix),/)
install uninstall: export install_destination = $(DESTDIR)
# What install put below that prefix: which directories it took for the rest is known to the build alone, which may be gone.
install_list = "$$install_destination$$install_prefix/share/hakmem/install_manifest.txt"

.PHONY: install
install: lib ## Install the release (prefix=, DESTDIR=)
	@umask 022; cmake --install build/release --prefix "$$install_prefix" && \
	mkdir -p "$$install_destination$$install_prefix/share/hakmem" && touch $(install_list) && \
	sort -u -o $(install_list) $(install_list) build/release/install_manifest.txt

.PHONY: uninstall
uninstall: ## Remove what install put there (prefix=, DESTDIR=)
	@[ -e $(install_list) ] || { printf 'make: there is no %s, which tells what was installed: %s\n' $(install_list) \
	    'where something was, "make install" with the same prefix and DESTDIR makes it anew' >&2; exit 1; }
	@while IFS= read -r file; do rm -f "$$install_destination$$file" || exit; done <$(install_list); \
	sed -n 's,/[^/]*$$,,p' $(install_list) | sort -ru | while IFS= read -r folder; do \
	    case $$folder in */hakmem|*/hakmem/profiles|*/doc/hakmem/docs|*/doc/hakmem/docs/decisions) rmdir "$$install_destination$$folder" 2>/dev/null ;; esac; \
	done; \
	rm $(install_list) && { rmdir "$$install_destination$$install_prefix/share/hakmem" 2>/dev/null || true; }

# The rest that it keeps is of scripts/setup: the lock, and what the next one ends for one that was killed.
.PHONY: clean
clean: ## Remove everything that was built (keeps build/venv)
	@find build -mindepth 1 -maxdepth 1 ! -name venv ! -name setup.stay_off ! -name .setup.lock -exec rm -rf {} +
