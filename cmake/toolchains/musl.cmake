# Debian's musl beside the machine's own glibc: GCC with musl's headers and start files. There is no
# C++ library for it.
set(HAKMEM_PORT musl)

find_program(found_musl_gcc musl-gcc)
if(NOT found_musl_gcc)
  message(FATAL_ERROR "musl-gcc is missing. scripts/setup installs it (Debian package musl-tools).")
endif()
set(CMAKE_C_COMPILER ${found_musl_gcc})
set(HAKMEM_CXX OFF CACHE BOOL "No C++ library for musl" FORCE)
