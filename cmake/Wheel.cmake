# What `pip install .` (pyproject.toml) installs beside the command's Python files, below hakmem/installed there: the library
# with its profiles, and what the command reads of this tree, at the places it has here (tools/hakmem/project.py).

# As in a distribution's package: no debug information, which names this machine's directories.
target_link_options(hakmem PRIVATE -s)

# One file: a wheel has no links, and would have a copy for each of the library's names.
install(FILES $<TARGET_FILE:hakmem> DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME libhakmem.so COMPONENT wheel)
install(FILES ${profiles} DESTINATION ${CMAKE_INSTALL_DATADIR}/hakmem/profiles COMPONENT wheel)
foreach(read src/api/exports.map src/config/aliases.def src/config/build_id.h src/config/counters.def src/config/options.def
    src/config/profile.def src/config/profile.h src/space/size_class.def)
  get_filename_component(folder ${read} DIRECTORY)
  install(FILES ${read} DESTINATION ${folder} COMPONENT wheel)
endforeach()
file(WRITE ${PROJECT_BINARY_DIR}/version "${PROJECT_VERSION}\n")
install(FILES ${PROJECT_BINARY_DIR}/version DESTINATION . COMPONENT wheel)

# Below the environment's own prefix.
install(FILES docs/hakmem.1 DESTINATION ${SKBUILD_DATA_DIR}/share/man/man1 COMPONENT wheel)
install(FILES docs/hakmem.bash DESTINATION ${SKBUILD_DATA_DIR}/share/bash-completion/completions RENAME hakmem COMPONENT wheel)
