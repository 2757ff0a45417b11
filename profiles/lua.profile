# hakmem profile for lua, goal memory, 2026-11-22: chosen from what was tried on several scripts
# (docs/decisions/0044).
# Measured: lua5.4 bench/programs/inputs/churn.lua 200
# Against the default: peak RSS -13.5 % (-14.3 % to -12.2 %), processor time -8.0 % (-19.9 % to
# +0.9 %), in 7 interleaved pairs (median, 95 % interval); 14.3 MiB instead of 16.5 MiB.
# docs/PROFILES.md has other input.
profile_format=1
hakmem_version=0.1.0

# Small caches, nothing kept for later: with the lines below alone, caches as they are, churn.lua
# takes 7.3 % less instead of 10.7 %.
mode=lean

# What is free beyond a megabyte goes back at once: with this line alone orders.lua takes 8.5 %
# less.
excess_bytes=1M

# Free pages go back while the program still runs, and serve another size meanwhile: without these
# lines orders.lua takes 8.8 % less instead of 10.9 %.
purge_delay_ms=10
slab_purge_delay_ms=20
decay_interval_ms=20
