# hakmem profile for postgres, made by hakmem tune on 2026-11-21, goal memory.
# Recorded and measured: sh profiles/inputs/postgres.sh learn 60
# Against the default: peak RSS -20.4 % (-20.8 % to -19.9 %), processor time -1.8 % (-4.0 % to
# +12.2 %), page faults +54.5 %, in 7 interleaved pairs (median, 95 % interval); 51.8 MiB instead
# of 65.2 MiB.
# postgres: 189,781 allocations, half of the blocks live at most 220 ns; 1 thread, 0.0 % of the
# frees are of other threads' blocks; at its peak 1.4 MiB asked for in small blocks, 1.4 MiB at
# the end; 26.9 MiB resident at most, in 1 look.
profile_format=1
hakmem_version=0.1.0

# Small caches, early purge, nothing kept for later. On top of those kept before: peak RSS -10.0
# %, processor time +2.4 %, in a few runs.
mode=lean

# Empty runs go back at once. On top of those kept before: peak RSS -12.2 %, processor time -2.3
# %, in a few runs.
purge_delay_ms=0
