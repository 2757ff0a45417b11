# hakmem profile for perl, made by hakmem tune on 2026-11-21, goal memory. Its bound on free
# memory was added on 2026-11-22 (docs/decisions/0044).
# Recorded and measured: env PERL_HASH_SEED=0 perl bench/programs/inputs/churn.pl 400
# Against the default: peak RSS -11.3 % (-11.9 % to +0.2 %), processor time -6.6 % (-10.8 % to
# +22.3 %), in 5 interleaved pairs (median, 95 % interval); 50.1 MiB instead of 55.8 MiB.
# docs/PROFILES.md has other input. Slabs of blocks above 16 KiB became shorter on 2026-11-23
# (docs/decisions/0053); the figures here are from before.
# perl: 2,824,561 allocations, half of the blocks live at most 1 us; 4 threads, 1.6 % of the frees
# are of other threads' blocks; at its peak 38.0 MiB asked for in small blocks, 8.1 MiB at the
# end; 56.8 MiB resident at most, in 84 looks.
profile_format=1
hakmem_version=0.1.0

# What is free beyond a megabyte goes back at once: with this line churn.pl takes 12.0 % less
# instead of 9.0 %; other scripts show no difference.
excess_bytes=1M

# Free pages go back while the program still runs, and serve another size meanwhile. On top of
# those kept before: peak RSS -10.4 %, processor time -2.5 %, in a few runs.
slab_purge_delay_ms=20
decay_interval_ms=20

# Small caches, early purge, nothing kept for later. On top of those kept before: peak RSS -3.0 %,
# processor time -1.6 %, in a few runs.
mode=lean

# Empty runs go back at once. On top of those kept before: peak RSS -1.1 %, processor time -2.8 %,
# in a few runs.
purge_delay_ms=0

# Slabs of few blocks are empty sooner, and their pages serve other sizes. On top of those kept
# before: peak RSS -1.4 %, processor time +2.6 %, in a few runs.
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
size_class=20480:3
size_class=24576:3
size_class=28672:4
size_class=32768:4
size_class=40960:5
size_class=49152:6
size_class=57344:7
size_class=65536:8
