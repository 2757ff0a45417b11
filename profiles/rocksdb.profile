# hakmem profile for db_bench, made by hakmem tune on 2026-11-22, goal memory.
# Recorded and measured: sh profiles/inputs/rocksdb.sh learn 20000
# Against the default: peak RSS -21.3 % (-23.0 % to -18.9 %), processor time +2.9 % (-1.8 % to
# +8.6 %), page faults +92.4 %, in 9 interleaved pairs (median, 95 % interval); 22.5 MiB instead
# of 28.5 MiB.
# db_bench: 809,665 allocations, half of the blocks live at most 10 us; 6 threads, 0.0 % of the
# frees are of other threads' blocks; at its peak 4.1 MiB asked for in small blocks, 4.1 MiB at
# the end; 28.4 MiB resident at most, in 20 looks.
profile_format=1
hakmem_version=0.1.0

# What is free beyond a megabyte goes back at once, and no empty slab or mapping waits for the
# next burst; caches stay as they are. On top of those kept before: peak RSS -7.5 %, processor
# time -5.7 %, in a few runs.
excess_bytes=1M
retain_slabs=0
huge_cache_bytes=0

# Free pages go back while the program still runs, and serve another size meanwhile. On top of
# those kept before: peak RSS -7.1 %, processor time -4.9 %, in a few runs.
slab_purge_delay_ms=20
decay_interval_ms=20

# Empty runs go back at once. On top of those kept before: peak RSS -3.8 %, processor time -7.4 %,
# in a few runs.
purge_delay_ms=0
