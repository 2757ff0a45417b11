# hakmem profile for redis-server, made by hakmem tune on 2026-11-21, goal memory.
# Recorded and measured: sh profiles/inputs/redis.sh learn 250000
# Against the default: peak RSS -10.0 % (-10.0 % to -9.9 %), processor time -1.7 % (-2.2 % to -0.1
# %), page faults -9.1 %, in 7 interleaved pairs (median, 95 % interval); 55.5 MiB instead of 61.6
# MiB.
# redis-server: 3,558,169 allocations, half of the blocks live at most 1 us; 1 thread, 0.0 % of
# the frees are of other threads' blocks; at its peak 42.8 MiB asked for in small blocks, 42.8 MiB
# at the end; 62.5 MiB resident at most, in 61 looks.
profile_format=1
hakmem_version=0.1.0

# 53 size classes for the sizes that were asked for: blocks, slack and partly used slabs take 44.3
# MiB at their peaks instead of 50.2 MiB, by the model. On top of those kept before: peak RSS -9.9
# %, processor time -1.0 %, in a few runs.
size_class=16
size_class=32
size_class=48
size_class=64
size_class=80
size_class=112
size_class=128
size_class=144
size_class=192
size_class=256
size_class=272
size_class=288
size_class=352
size_class=384
size_class=416
size_class=512
size_class=576
size_class=752
size_class=768
size_class=832
size_class=896
size_class=1024
size_class=1152
size_class=1408
size_class=1536
size_class=2048
size_class=2560
size_class=2816
size_class=2880
size_class=3072
size_class=3328
size_class=3584
size_class=4096
size_class=4608
size_class=4800
size_class=5120
size_class=5632
size_class=6144
size_class=8192
size_class=8320
size_class=10240
size_class=12288
size_class=14336
size_class=16384
size_class=16400
size_class=20480
size_class=24576
size_class=28672
size_class=32768
size_class=40960
size_class=49152
size_class=57344
size_class=65536
