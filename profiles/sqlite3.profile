# hakmem profile for sqlite3, made by hakmem tune on 2026-11-21, goal memory.
# Recorded and measured: sh -c '(echo ".parameter set :rows 60000"; cat "$1") | sqlite3 -batch
# -bail :memory:' sh bench/programs/inputs/tables.sql
# Against the default: peak RSS -10.7 % (-10.8 % to -10.6 %), processor time +1.2 % (-3.7 % to
# +2.1 %), page faults +22.9 %, in 7 interleaved pairs (median, 95 % interval); 28.7 MiB instead
# of 32.1 MiB.
# sqlite3: 394,115 allocations, half of the blocks live at most 790 ns; 1 thread, 0.0 % of the
# frees are of other threads' blocks; at its peak 16.4 MiB asked for in small blocks, 8.0 MiB at
# the end; 32.3 MiB resident at most, in 18 looks.
# Slabs of blocks above 16 KiB became shorter on 2026-11-23 (docs/decisions/0053); the figures here
# are from before.
profile_format=1
hakmem_version=0.1.0

# Free pages go back while the program still runs, and serve another size meanwhile. On top of
# those kept before: peak RSS -2.1 %, processor time -0.4 %, in a few runs.
slab_purge_delay_ms=20
decay_interval_ms=20

# Empty runs go back at once. On top of those kept before: peak RSS -0.8 %, processor time -1.2 %,
# in a few runs.
purge_delay_ms=0

# 61 size classes for the sizes that were asked for: blocks, slack and partly used slabs take 18.4
# MiB at their peaks instead of 19.5 MiB, by the model. On top of those kept before: peak RSS -3.6
# %, processor time +0.8 %, in a few runs. Slabs of few blocks are empty sooner, and their pages
# serve other sizes. On top of those kept before: peak RSS -4.5 %, processor time -0.5 %, in a few
# runs.
size_class=16:1
size_class=32:1
size_class=64:1
size_class=96:1
size_class=128:1
size_class=144:1
size_class=192:1
size_class=256:1
size_class=304:1
size_class=352:1
size_class=464:1
size_class=480:1
size_class=512:1
size_class=576:1
size_class=640:1
size_class=816:1
size_class=832:1
size_class=1024:1
size_class=1040:1
size_class=1184:1
size_class=1280:1
size_class=1632:1
size_class=1664:1
size_class=1792:1
size_class=2032:1
size_class=2048:1
size_class=2064:1
size_class=2304:1
size_class=2560:1
size_class=2816:1
size_class=3072:1
size_class=3328:1
size_class=3584:1
size_class=3840:1
size_class=4096:1
size_class=4368:1
size_class=4608:1
size_class=4752:1
size_class=5120:1
size_class=5632:1
size_class=6144:1
size_class=6656:1
size_class=7168:1
size_class=7680:1
size_class=8080:1
size_class=8192:1
size_class=8208:2
size_class=10240:2
size_class=12288:2
size_class=14336:2
size_class=16384:2
size_class=16400:3
size_class=20480:3
size_class=24576:3
size_class=28672:4
size_class=32768:4
size_class=32784:5
size_class=40960:5
size_class=49152:6
size_class=57344:7
size_class=65536:8
