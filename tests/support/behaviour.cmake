# How the tests that use malloc through its public names are built and registered.
#
# behaviour_program(name SOURCES file... [LIBRARIES library...] [STATIC])
#   A program that names no allocator: it runs on whatever is preloaded, on glibc when nothing is.
#   STATIC builds it once more as <name>_static, linked with libhakmem.a.
#
# behaviour_test(name PROGRAM program [MODES mode...] [LIBC] [STATIC] [SERIAL]
#                [ARGS arg...] [ENV NAME=value...] [LABELS label...])
#   <name>.<mode>: the program with libhakmem.so preloaded and HAKMEM_MODE=<mode>.
#   <name>.libc:   without preload, on glibc: the check of the test itself (LIBC).
#   <name>.static: the program linked with libhakmem.a, in the default mode (STATIC).
set(BEHAVIOUR_MODES fast lean hardened research)
if(CMAKE_CROSSCOMPILING)
  # Emulation takes ten times as long; the modes do not differ by processor.
  set(BEHAVIOUR_MODES fast)
endif()
include_guard(GLOBAL)

# For the program, not for the emulator that runs it.
set(behaviour_preload "")
if(CMAKE_CROSSCOMPILING)
  set(behaviour_preload QEMU_SET_ENV=)
endif()

set(BEHAVIOUR_DIR ${CMAKE_CURRENT_LIST_DIR})

add_library(behaviour_flags INTERFACE)
target_include_directories(behaviour_flags INTERFACE ${BEHAVIOUR_DIR})
# As the core's own flags have it; C++ compilers define it themselves.
target_compile_options(behaviour_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-D_GNU_SOURCE=>)
# No builtins: the compiler would drop pairs of malloc and free, and with them what is tested.
# GCC 12 sees some of the misuse that is meant, and says so.
target_compile_options(behaviour_flags INTERFACE -fno-builtin -Wall -Wextra -Wshadow
  $<$<C_COMPILER_ID:GNU>:-Wno-alloc-size-larger-than -Wno-use-after-free -Wno-free-nonheap-object>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-mismatched-new-delete>
  $<$<BOOL:${hakmem_werror}>:-Werror>)
target_link_libraries(behaviour_flags INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

function(behaviour_program name)
  cmake_parse_arguments(arg "STATIC" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE behaviour_flags ${arg_LIBRARIES})
  if(arg_STATIC AND TARGET hakmem_static)
    add_executable(${name}_static ${arg_SOURCES})
    target_link_libraries(${name}_static PRIVATE behaviour_flags ${arg_LIBRARIES} hakmem_static)
  endif()
endfunction()

function(behaviour_test name)
  cmake_parse_arguments(arg "LIBC;STATIC;SERIAL" "PROGRAM" "MODES;ARGS;ENV;LABELS" ${ARGN})
  set(registered "")
  # What glibc does of itself is not a port's to show.
  if(arg_LIBC AND NOT HAKMEM_PORT)
    add_test(NAME ${name}.libc COMMAND ${arg_PROGRAM} ${arg_ARGS})
    set_tests_properties(${name}.libc PROPERTIES
      ENVIRONMENT "BEHAVIOUR_ALLOCATOR=libc;${arg_ENV}")
    list(APPEND registered ${name}.libc)
  endif()
  if(TARGET hakmem)
    foreach(mode ${arg_MODES})
      add_test(NAME ${name}.${mode} COMMAND ${arg_PROGRAM} ${arg_ARGS})
      set_tests_properties(${name}.${mode} PROPERTIES
        ENVIRONMENT "${behaviour_preload}LD_PRELOAD=$<TARGET_FILE:hakmem>;HAKMEM_MODE=${mode};BEHAVIOUR_ALLOCATOR=hakmem;${arg_ENV}")
      list(APPEND registered ${name}.${mode})
    endforeach()
    if(arg_STATIC)
      add_test(NAME ${name}.static COMMAND ${arg_PROGRAM}_static ${arg_ARGS})
      set_tests_properties(${name}.static PROPERTIES
        ENVIRONMENT "BEHAVIOUR_ALLOCATOR=hakmem;${arg_ENV}")
      list(APPEND registered ${name}.static)
    endif()
  endif()
  if(registered)
    set_tests_properties(${registered} PROPERTIES LABELS "${arg_LABELS}")
    if(arg_SERIAL)
      set_tests_properties(${registered} PROPERTIES RUN_SERIAL TRUE)
    endif()
  endif()
endfunction()
