"""The command line of hakmem.

Modules, lowest first: errors, project (where things lie), elf, options, process, preload (what can
run on hakmem), build, spawn, watch (the running tree), schema (the report files of the library),
analysis, render, commands.
"""
