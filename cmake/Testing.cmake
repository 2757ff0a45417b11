# Tests. Every directory below registers itself, without a time limit: what hangs is ended by the Makefile's
# (ctest has none of its own). Its labels: quick unit preload stress apps sanitizer.

# Python tests run in the environment that scripts/setup makes.
set(HAKMEM_PYTHON ${PROJECT_SOURCE_DIR}/build/venv/bin/python)

if(HAKMEM_PORT)
  # Debian has no cmocka for a port: what the tests use of it, written anew.
  add_library(cmocka_subset STATIC ${PROJECT_SOURCE_DIR}/tests/support/cmocka/cmocka.c)
  target_include_directories(cmocka_subset PUBLIC ${PROJECT_SOURCE_DIR}/tests/support/cmocka)
  set(CMOCKA_LIBRARY cmocka_subset)
else()
  find_library(CMOCKA_LIBRARY cmocka REQUIRED)
endif()

if(CMAKE_CROSSCOMPILING)
  set(hakmem_test_launcher ${CMAKE_CROSSCOMPILING_EMULATOR})
elseif(HAKMEM_SANITIZE STREQUAL "thread")
  # ThreadSanitizer of GCC 12 cannot place its shadow when the kernel randomises many address bits.
  set(hakmem_test_launcher setarch --addr-no-randomize)
else()
  set(hakmem_test_launcher "")
endif()

# Some tests repeat something many times. `make test` does a share of it in each flavour, so that all of
# them end in time on two slow cores; `make test-long` as much as the flavour has time for. `divisor`: how
# many operations of threads are left, one in so many. `stride`: every so many-th of the calls that can
# fail does. The build as shipped fails each of them in both.
#                  make test       | make test-long
#                  divisor stride  | divisor stride
if(CMAKE_CROSSCOMPILING)
  set(test_length  40      97        1       41)
elseif(HAKMEM_SANITIZE STREQUAL "thread")
  set(test_length  10      61        10      7)
elseif(HAKMEM_SANITIZE MATCHES "address")
  set(test_length  5       31        3       7)
elseif(HAKMEM_SANITIZE OR HAKMEM_PORT)
  set(test_length  5       31        1       7)
elseif(CMAKE_C_COMPILER_ID STREQUAL "Clang")
  set(test_length  5       31        1       1)
elseif(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(test_length  2       7         1       1)
else()
  set(test_length  2       1         1       1)
endif()
if(HAKMEM_LONG_TESTS)
  list(SUBLIST test_length 2 2 test_length)
endif()
list(GET test_length 0 repeat_divisor)
list(GET test_length 1 faults_stride)

if(CMAKE_BUILD_TYPE STREQUAL "Coverage")
  add_library(coverage_exit STATIC ${PROJECT_SOURCE_DIR}/tests/support/coverage_exit.c)
  target_link_libraries(hakmem_core INTERFACE coverage_exit)
  target_link_options(hakmem_core INTERFACE -Wl,--wrap=_exit)
endif()

# hakmem_add_unit_test(name SOURCES file... [LABELS label...] [ARGS arg...])
# A cmocka program linked with hakmem_core; runs in every flavour, the sanitizers included.
function(hakmem_add_unit_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LABELS;ARGS;DEFINITIONS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE hakmem_core ${CMOCKA_LIBRARY})
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wshadow $<$<BOOL:${hakmem_werror}>:-Werror> ${hakmem_sanitize})
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  add_test(NAME ${name} COMMAND ${hakmem_test_launcher} $<TARGET_FILE:${name}> ${arg_ARGS})
  set(labels ${arg_LABELS})
  if(NOT labels)
    set(labels quick unit)
  endif()
  if(HAKMEM_SANITIZE)
    list(APPEND labels sanitizer)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}")
endfunction()

# Directories whose tests call the core through internal entry points: every flavour runs them.
set(internal_directories config unit model concurrency)
# Directories whose tests need the libraries that replace malloc, or no library at all.
set(library_directories protocols api books guarded misuse stress odds limits faults abi tidy hotpath gates cli inspect report tune top bench apps sweep)

# The fuzz targets are a flavour of their own, and its only tests.
if(HAKMEM_SANITIZE MATCHES "fuzzer")
  set(internal_directories fuzz)
elseif(HAKMEM_PORT)
  # What is left out needs programs of this machine, its timing, or its instructions (docs/PORTING.md).
  set(library_directories api ports)
endif()

foreach(directory ${internal_directories})
  if(EXISTS ${PROJECT_SOURCE_DIR}/tests/${directory}/CMakeLists.txt)
    add_subdirectory(${PROJECT_SOURCE_DIR}/tests/${directory} ${PROJECT_BINARY_DIR}/tests/${directory})
  endif()
endforeach()
if(NOT HAKMEM_SANITIZE)
  if(HAKMEM_TESTS_WITHOUT)
    list(FILTER library_directories EXCLUDE REGEX "${HAKMEM_TESTS_WITHOUT}")
  endif()
  foreach(directory ${library_directories})
    if(EXISTS ${PROJECT_SOURCE_DIR}/tests/${directory}/CMakeLists.txt)
      add_subdirectory(${PROJECT_SOURCE_DIR}/tests/${directory} ${PROJECT_BINARY_DIR}/tests/${directory})
    endif()
  endforeach()
endif()
