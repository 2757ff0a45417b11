# Writes the names that stay global in the static library, one a line, for objcopy: those listed under
# "global:" in the version script, and those of the list of static names. The prefix hakmem_* is among
# them: it keeps the internal entry points that the C++ operators call.
file(READ ${MAP} text)
string(REGEX REPLACE "/\\*[^*]*\\*/" "" text "${text}")
string(REGEX MATCH "global:(.*)local:" matched "${text}")
string(REGEX MATCHALL "[A-Za-z_][A-Za-z0-9_]*\\*?" names "${CMAKE_MATCH_1}")
file(STRINGS ${STATIC_NAMES} static_names REGEX "^[^#]")
list(JOIN names "\n" lines)
list(JOIN static_names "\n" static_lines)
file(WRITE ${OUT} "${lines}\n${static_lines}\n")
