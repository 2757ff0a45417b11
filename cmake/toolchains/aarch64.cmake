# Debian's cross compiler for aarch64; the tests run under its user-mode emulator.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(HAKMEM_PORT aarch64)

foreach(tool aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64)
  find_program(found_${tool} ${tool})
  if(NOT found_${tool})
    message(FATAL_ERROR "${tool} is missing. scripts/setup installs it (Debian packages gcc-aarch64-linux-gnu, "
      "g++-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user).")
  endif()
endforeach()
set(CMAKE_C_COMPILER ${found_aarch64-linux-gnu-gcc})
set(CMAKE_CXX_COMPILER ${found_aarch64-linux-gnu-g++})
# The size of a page that the programs are told: QEMU_PAGESIZE in the environment.
# The emulator keeps what it translated in trees of GLib's, whose own allocator is not made for forks: a child of a program with
# threads may wait for ever for a lock held by a thread that does not exist in it (QEMU's issue 285, of 7.2 and before).
set(CMAKE_CROSSCOMPILING_EMULATOR /usr/bin/env G_SLICE=always-malloc ${found_qemu-aarch64} -L /usr/aarch64-linux-gnu)

set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
