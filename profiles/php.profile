# hakmem profile for php, made by hakmem tune on 2026-11-21, goal memory.
# Recorded and measured: env USE_ZEND_ALLOC=0 php -n bench/programs/inputs/churn.php 2500
# Against the default: peak RSS -9.8 % (-10.2 % to -9.2 %), processor time -0.1 % (-11.2 % to +8.2
# %), page faults +3.1 %, in 7 interleaved pairs (median, 95 % interval); 22.5 MiB instead of 24.9
# MiB.
# php: 3,325,598 allocations, half of the blocks live at most 8 ms; 1 thread, 0.0 % of the frees
# are of other threads' blocks; at its peak 4.6 MiB asked for in small blocks, 333.7 KiB at the
# end; 25.5 MiB resident at most, in 68 looks.
# Slabs of blocks above 16 KiB became shorter on 2026-11-23 (docs/decisions/0053); the figures here
# are from before.
profile_format=1
hakmem_version=0.1.0

# Free pages go back while the program still runs, and serve another size meanwhile. On top of
# those kept before: peak RSS -0.9 %, processor time +1.3 %, in a few runs.
purge_delay_ms=10
slab_purge_delay_ms=20
decay_interval_ms=20

# 54 size classes for the sizes that were asked for: blocks, slack and partly used slabs take 5.2
# MiB at their peaks instead of 5.3 MiB, by the model. On top of those kept before: peak RSS -7.9
# %, processor time -3.5 %, in a few runs. Slabs of few blocks are empty sooner, and their pages
# serve other sizes. On top of those kept before: peak RSS -1.4 %, processor time -0.2 %, in a few
# runs.
size_class=16:1
size_class=32:1
size_class=48:1
size_class=64:1
size_class=80:1
size_class=96:1
size_class=112:1
size_class=128:1
size_class=144:1
size_class=176:1
size_class=208:1
size_class=256:1
size_class=288:1
size_class=320:1
size_class=336:1
size_class=352:1
size_class=432:1
size_class=512:1
size_class=640:1
size_class=704:1
size_class=768:1
size_class=1024:1
size_class=1280:1
size_class=1600:1
size_class=1664:1
size_class=1792:1
size_class=2048:1
size_class=2560:1
size_class=2816:1
size_class=3072:1
size_class=3328:1
size_class=3584:1
size_class=3840:1
size_class=4096:1
size_class=4480:1
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
size_class=20480:3
size_class=24576:3
size_class=28672:4
size_class=32768:4
size_class=40960:5
size_class=49152:6
size_class=65536:8
