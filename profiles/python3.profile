# hakmem profile for python3, made by hakmem tune on 2026-11-21, goal memory.
# Recorded and measured: env PYTHONMALLOC=malloc PYTHONHASHSEED=0 /usr/bin/python3
# bench/programs/inputs/churn.py 250
# Against the default: peak RSS -4.4 % (-4.5 % to -4.3 %), processor time +0.4 % (-14.8 % to +5.6
# %), page faults +29.5 %, in 7 interleaved pairs (median, 95 % interval); 33.7 MiB instead of
# 35.3 MiB.
# python3: 4,992,181 allocations, half of the blocks live at most 1 us; 1 thread, 0.0 % of the
# frees are of other threads' blocks; at its peak 22.6 MiB asked for in small blocks, 2.8 MiB at
# the end; 36.0 MiB resident at most, in 85 looks.
profile_format=1
hakmem_version=0.1.0

# Empty runs go back at once. On top of those kept before: peak RSS -3.5 %, processor time -3.4 %,
# in a few runs.
purge_delay_ms=0

# Slabs of few blocks are empty sooner, and their pages serve other sizes. On top of those kept
# before: peak RSS -1.1 %, processor time -16.3 %, in a few runs.
size_class=16:1
size_class=32:1
size_class=48:1
size_class=64:1
size_class=80:1
size_class=96:1
size_class=112:1
size_class=128:1
size_class=144:1
size_class=160:1
size_class=176:1
size_class=192:1
size_class=208:1
size_class=224:1
size_class=240:1
size_class=256:1
size_class=288:1
size_class=320:1
size_class=352:1
size_class=384:1
size_class=416:1
size_class=448:1
size_class=480:1
size_class=512:1
size_class=576:1
size_class=640:1
size_class=704:1
size_class=768:1
size_class=832:1
size_class=896:1
size_class=960:1
size_class=1024:1
size_class=1152:1
size_class=1280:1
size_class=1408:1
size_class=1536:1
size_class=1664:1
size_class=1792:1
size_class=1920:1
size_class=2048:1
size_class=2304:1
size_class=2560:1
size_class=2816:1
size_class=3072:1
size_class=3328:1
size_class=3584:1
size_class=3840:1
size_class=4096:1
size_class=4608:1
size_class=5120:1
size_class=5632:1
size_class=6144:1
size_class=6656:1
size_class=7168:1
size_class=7680:1
size_class=8192:1
size_class=10240:2
size_class=12288:2
size_class=14336:2
size_class=16384:2
size_class=20480:4
size_class=24576:4
size_class=28672:4
size_class=32768:4
size_class=40960:8
size_class=49152:8
size_class=57344:8
size_class=65536:8
