# A thin front for CMake and CTest; `make help` lists every target.

JOBS ?= $(shell nproc)
SANITIZERS := asan ubsan tsan
PYTHON := build/venv/bin/python
prefix ?= /usr/local

configure = cmake --preset $(1) $(2) >build/$(1).configure.log || { cat build/$(1).configure.log; \
    echo "make: scripts/setup installs what building needs (Debian packages in scripts/packages.txt)" >&2; exit 1; }
build = cmake --build build/$(1) --parallel $(JOBS) $(2)
ctest = ctest --test-dir build/$(1) --output-on-failure --no-tests=error $(2)

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
check: setup | build ## Seconds: build, unit tests and the repository's own rules
	@$(call configure,release,-DHAKMEM_TESTS=ON)
	@$(call build,release)
	@$(call ctest,release,--label-regex quick --parallel $(JOBS))

.PHONY: test
test: setup | build ## Minutes: every test in every flavour; what CI runs
	@for flavour in release debug $(SANITIZERS) clang fuzz; do \
	    echo "== build $$flavour"; \
	    $(call configure,$$flavour,-DHAKMEM_TESTS=ON) && $(call build,$$flavour) >build/$$flavour.build.log 2>&1 || \
	        { tail -n 60 build/$$flavour.build.log; exit 1; }; \
	done
	@failed=; \
	run() { echo "== test $$1"; flavour=$$1; shift; \
	    $(call ctest,$$flavour,--parallel $(JOBS) "$$@") || failed="$$failed $$flavour"; }; \
	run release; \
	run debug --label-exclude 'apps|stress'; \
	for flavour in $(SANITIZERS); do run $$flavour; done; \
	run clang --label-regex 'quick|unit'; \
	run fuzz; \
	echo "== tidy"; $(PYTHON) tools/tidy/tidy.py --all || failed="$$failed tidy"; \
	[ -z "$$failed" ] || { echo "make test: failed:$$failed" >&2; exit 1; }

.PHONY: stress
stress: setup | build ## The stress tests alone, as shipped and with internal checks
	@for flavour in release debug; do \
	    $(call configure,$$flavour,-DHAKMEM_TESTS=ON) && $(call build,$$flavour) && \
	    $(call ctest,$$flavour,--label-regex stress) || exit 1; \
	done




MINUTES ?= 10
.PHONY: fuzz
fuzz: setup | build ## Look for new inputs that break the allocator or its parsers (MINUTES=10, all targets together)
	@$(call configure,fuzz,-DHAKMEM_TESTS=ON)
	@$(call build,fuzz)
	@$(PYTHON) tests/fuzz/fuzz.py --build build/fuzz/tests/fuzz search --minutes $(MINUTES)
