# The two libraries that replace malloc, and what is installed with them.

set(exports_map ${PROJECT_SOURCE_DIR}/src/api/exports.map)
set(replaceable ${PROJECT_SOURCE_DIR}/src/api/replaceable.list)
set(static_names ${PROJECT_SOURCE_DIR}/src/api/static_names.txt)

add_library(hakmem_c_names OBJECT ${hakmem_c_names})
target_link_libraries(hakmem_c_names PRIVATE hakmem_flags)
# malloc and free beside what they call, the rest of glibc's names behind all (see the order of sources).
set(name_objects $<FILTER:$<TARGET_OBJECTS:hakmem_c_names>,EXCLUDE,/glibc\\.c>)
set(seldom_name_objects $<FILTER:$<TARGET_OBJECTS:hakmem_c_names>,INCLUDE,/glibc\\.c>)
set(objects ${name_objects} $<TARGET_OBJECTS:hakmem_objects> ${seldom_name_objects})
set(cxx_objects "")
set(cxx_objects_shared "")
if(HAKMEM_CXX)
  # The operators twice: in the shared library their references to the C++ runtime are weak.
  add_library(hakmem_cxx_names OBJECT ${hakmem_cxx_names})
  target_link_libraries(hakmem_cxx_names PRIVATE hakmem_flags)
  add_library(hakmem_cxx_names_shared OBJECT ${hakmem_cxx_names})
  target_link_libraries(hakmem_cxx_names_shared PRIVATE hakmem_flags)
  target_compile_definitions(hakmem_cxx_names_shared PRIVATE HAKMEM_SHARED)
  set(cxx_objects $<TARGET_OBJECTS:hakmem_cxx_names>)
  set(cxx_objects_shared $<TARGET_OBJECTS:hakmem_cxx_names_shared>)
endif()

# ---- libhakmem.so
# Relocations as a bitmap, where the C library that is built for has them: three pages less for the loader to read.
check_c_source_compiles("
  #include <features.h>
  #if !defined(__GLIBC__) || !__GLIBC_PREREQ(2, 36)
  #error
  #endif
  int main(void) { return 0; }" HAKMEM_GLIBC_HAS_RELR)
# What is asked of the linker below is asked of the one that links libraries.
set(exe_linker_flags "${CMAKE_EXE_LINKER_FLAGS}")
set(CMAKE_EXE_LINKER_FLAGS "${CMAKE_SHARED_LINKER_FLAGS}")
# Some linkers take the option and ignore it (lld 14), others leave out the version without which the loader refuses the
# library (mold 1.10): whether it is there is looked up in what was linked.
if(HAKMEM_GLIBC_HAS_RELR AND NOT DEFINED HAKMEM_LINKER_PACKS_RELR)
  set(relr_probe ${PROJECT_BINARY_DIR}/CMakeFiles/relr_probe.so)
  try_compile(relr_linked
    SOURCE_FROM_CONTENT relr_probe.c "#include <stdlib.h>
      static int value;
      int *relocated = &value;
      void probe(void) { abort(); }"
    COMPILE_DEFINITIONS -fPIC
    LINK_OPTIONS -shared -Wl,-z,pack-relative-relocs
    COPY_FILE ${relr_probe}
    NO_CACHE)
  set(relr_version "")
  if(relr_linked)
    file(STRINGS ${relr_probe} relr_version REGEX GLIBC_ABI_DT_RELR)
  endif()
  string(COMPARE NOTEQUAL "${relr_version}" "" relr_is_known)
  set(HAKMEM_LINKER_PACKS_RELR ${relr_is_known} CACHE INTERNAL "Packs relocations in a way that the loader takes")
endif()
set(hakmem_packed_relocations "")
if(HAKMEM_GLIBC_HAS_RELR AND HAKMEM_LINKER_PACKS_RELR)
  set(hakmem_packed_relocations -Wl,-z,pack-relative-relocs)
endif()

# Constructors and destructors are in the arrays: no _init and _fini, which would be touched at the code's two ends. Not
# every linker can leave them out (gold).
check_linker_flag(C -Wl,-init=,-fini= HAKMEM_LINKER_OMITS_INIT)
set(hakmem_no_init "")
if(HAKMEM_LINKER_OMITS_INIT)
  set(hakmem_no_init -Wl,-init=,-fini=)
endif()

# Where what ordinary processes touch lies, and what they do not, where the linker can add to its script.
set(layout ${PROJECT_BINARY_DIR}/layout.ld)
set(ordinary_list ${PROJECT_SOURCE_DIR}/cmake/ordinary_functions.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ordinary_list})
file(STRINGS ${ordinary_list} ordinary_functions REGEX "^[^#]")
list(TRANSFORM ordinary_functions REPLACE "^(.+)$" "    *(.text.\\1 .text.\\1.*)" OUTPUT_VARIABLE ordinary_texts)
list(TRANSFORM ordinary_functions REPLACE "^(unlikely\\.|startup\\.|exit\\.)?(.+)$" "    *(.rodata.\\2 .rodata.\\2.*)"
  OUTPUT_VARIABLE ordinary_constants)
list(JOIN ordinary_texts "\n" ordinary_texts)
list(JOIN ordinary_constants "\n" ordinary_constants)
configure_file(cmake/layout.ld.in ${layout} @ONLY)
# Files by --for-linker=, since a comma in the name of a directory would end what -Wl passes on.
check_linker_flag(C --for-linker=--script=${layout} HAKMEM_LINKER_INSERTS)
set(hakmem_layout "")
if(HAKMEM_LINKER_INSERTS)
  set(hakmem_layout --for-linker=--script=${layout})
endif()
set(CMAKE_EXE_LINKER_FLAGS "${exe_linker_flags}")

# A linker makes its file anew at its start: one that was killed would leave a part, newer than its sources, and who starts a
# program meanwhile would find one.
string(REPLACE "-o <TARGET>" "-o <TARGET>.new" CMAKE_C_CREATE_SHARED_LIBRARY "${CMAKE_C_CREATE_SHARED_LIBRARY}")
list(APPEND CMAKE_C_CREATE_SHARED_LIBRARY "<CMAKE_COMMAND> -E rename <TARGET>.new <TARGET>")

add_library(hakmem SHARED ${objects} ${cxx_objects_shared} ${hakmem_shared_sources})
target_link_libraries(hakmem PRIVATE $<BUILD_INTERFACE:hakmem_flags> ${CMAKE_DL_LIBS})
set_target_properties(hakmem PROPERTIES
  # The C driver links it: g++ would add libstdc++.so, and every preloaded C program would load that.
  LINKER_LANGUAGE C
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS "${exports_map};${replaceable};${layout}")
target_link_options(hakmem PRIVATE
  # libgcc finds the unwind tables by which stacks are walked, without its shared library (docs/decisions/0008-stacks.md).
  -static-libgcc
  --for-linker=--version-script=${exports_map}
  # The operators call malloc directly, not through the PLT, and one another as the process has them.
  -Wl,-Bsymbolic-functions --for-linker=--dynamic-list=${replaceable}
  -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,--as-needed -Wl,--build-id=sha1
  # A malloc can never be unloaded: blocks and thread-exit hooks outlive dlclose.
  -Wl,-z,nodelete
  ${hakmem_no_init} ${hakmem_packed_relocations} ${hakmem_layout})

# ---- libhakmem.a
# One object holds the whole allocator, so that a reference to any of libc's malloc names brings in all of
# them and libc's own malloc object is never needed. Names that are not exported become local to it and
# cannot clash with a program's. operator delete is among them, weak, so that a program may bring its own.
# operator new is a second object, which only C++ programs pull in.
add_library(hakmem_archive_objects OBJECT ${hakmem_archive_sources})
target_link_libraries(hakmem_archive_objects PRIVATE hakmem_flags)
set(archive_objects ${objects} $<TARGET_OBJECTS:hakmem_archive_objects>)
set(whole_object ${PROJECT_BINARY_DIR}/static/hakmem.o)
set(global_names ${PROJECT_BINARY_DIR}/static/global_names.txt)
# With the words that the compiler was named with: CC="ccache gcc", CC="clang --target=...".
separate_arguments(compiler_words UNIX_COMMAND "${CMAKE_C_COMPILER_ARG1}")
add_custom_command(
  OUTPUT ${whole_object}
  COMMAND ${CMAKE_COMMAND} -DMAP=${exports_map} -DSTATIC_NAMES=${static_names} -DOUT=${global_names}
    -P ${PROJECT_SOURCE_DIR}/cmake/GlobalNames.cmake
  COMMAND ${CMAKE_C_COMPILER} ${compiler_words} -r -nostdlib -o ${whole_object}.new ${archive_objects}
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbols=${global_names} --weaken-symbol=_Zd[la]P* ${whole_object}.new
  COMMAND ${CMAKE_COMMAND} -E rename ${whole_object}.new ${whole_object}
  DEPENDS hakmem_objects hakmem_c_names hakmem_archive_objects ${archive_objects} ${exports_map} ${static_names}
    ${PROJECT_SOURCE_DIR}/cmake/GlobalNames.cmake
  COMMAND_EXPAND_LISTS VERBATIM)
set_source_files_properties(${whole_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_library(hakmem_static STATIC ${whole_object} ${cxx_objects})
set_target_properties(hakmem_static PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME hakmem)

foreach(target hakmem hakmem_static)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
# A program that never names malloc itself still uses it through libc: this keeps the linker from
# dropping the shared library under --as-needed, and from passing the archive over.
target_link_options(hakmem INTERFACE "LINKER:--no-as-needed")
target_link_options(hakmem_static INTERFACE "LINKER:--undefined=malloc")
target_link_libraries(hakmem_static INTERFACE Threads::Threads)
add_library(hakmem::hakmem ALIAS hakmem)
add_library(hakmem::hakmem_static ALIAS hakmem_static)

# ---- What stands beside them in the build tree: public headers, CMake package, pkg-config file
file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/[a-z]*.h)
foreach(header ${public_headers})
  get_filename_component(name ${header} NAME)
  configure_file(${header} ${PROJECT_BINARY_DIR}/include/${name} COPYONLY)
endforeach()
configure_package_config_file(cmake/hakmem-config.cmake.in ${PROJECT_BINARY_DIR}/hakmem-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hakmem)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hakmem-config-version.cmake COMPATIBILITY SameMajorVersion)
# Below the prefix, wherever that is moved to; but where a directory was given as an absolute one, it is that.
foreach(name LIBDIR INCLUDEDIR)
  set(pc_${name} ${CMAKE_INSTALL_${name}})
  if(NOT IS_ABSOLUTE "${pc_${name}}")
    string(PREPEND pc_${name} "\${prefix}/")
  endif()
endforeach()
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" pc_prefix "\${pcfiledir}/${pc_prefix}")
endif()
configure_file(cmake/hakmem.pc.in ${PROJECT_BINARY_DIR}/hakmem.pc @ONLY)

# ---- Install
install(TARGETS hakmem hakmem_static EXPORT hakmem-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT hakmem-targets NAMESPACE hakmem:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hakmem)
export(EXPORT hakmem-targets NAMESPACE hakmem:: FILE ${PROJECT_BINARY_DIR}/hakmem-targets.cmake)
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_BINARY_DIR}/hakmem-config.cmake ${PROJECT_BINARY_DIR}/hakmem-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hakmem)
file(GLOB profiles CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/profiles/[a-z]*.profile)
install(FILES ${profiles} DESTINATION ${CMAKE_INSTALL_DATADIR}/hakmem/profiles)
install(FILES LICENSE README.md SECURITY.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Where they lie beside each other, as they link to each other.
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
install(FILES ${PROJECT_BINARY_DIR}/hakmem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(GLOB manual_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/[a-z]*.[13])
foreach(page ${manual_pages})
  get_filename_component(section ${page} LAST_EXT)
  string(SUBSTRING ${section} 1 -1 section)
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
