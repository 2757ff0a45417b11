# hakmem profile for ruby, made by hakmem tune on 2026-11-21, goal memory.
# Recorded and measured: ruby bench/programs/inputs/churn.rb 400
# Against the default: peak RSS -15.9 % (-17.6 % to -14.9 %), processor time -2.1 % (-3.5 % to
# +8.2 %), page faults +47.4 %, in 7 interleaved pairs (median, 95 % interval); 49.1 MiB instead
# of 58.8 MiB.
# ruby: 1,562,285 allocations, half of the blocks live at most 21 ms; 4 threads, 3.1 % of the
# frees are of other threads' blocks; at its peak 6.8 MiB asked for in small blocks, 3.5 MiB at
# the end; 55.3 MiB resident at most, in 59 looks.
profile_format=1
hakmem_version=0.1.0

# Free pages go back while the program still runs, and serve another size meanwhile. On top of
# those kept before: peak RSS -6.7 %, processor time -6.1 %, in a few runs.
slab_purge_delay_ms=20
decay_interval_ms=20

# Small caches, early purge, nothing kept for later. On top of those kept before: peak RSS -8.8 %,
# processor time -1.5 %, in a few runs.
mode=lean

# Empty runs go back at once. On top of those kept before: peak RSS -0.6 %, processor time -3.2 %,
# in a few runs.
purge_delay_ms=0

# 48 size classes for the sizes that were asked for: blocks, slack and partly used slabs take 9.3
# MiB at their peaks instead of 9.7 MiB, by the model. On top of those kept before: peak RSS -2.3
# %, processor time +1.9 %, in a few runs.
size_class=16
size_class=32
size_class=48
size_class=64
size_class=96
size_class=112
size_class=128
size_class=144
size_class=192
size_class=224
size_class=256
size_class=320
size_class=352
size_class=416
size_class=464
size_class=512
size_class=608
size_class=768
size_class=1024
size_class=1200
size_class=1600
size_class=2048
size_class=2528
size_class=2560
size_class=3280
size_class=3328
size_class=3584
size_class=4096
size_class=4752
size_class=6176
size_class=6656
size_class=7168
size_class=8192
size_class=9440
size_class=10240
size_class=12288
size_class=14336
size_class=16384
size_class=17712
size_class=20480
size_class=26560
size_class=28672
size_class=32768
size_class=39856
size_class=40960
size_class=49152
size_class=57344
size_class=65536
