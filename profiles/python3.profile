# hakmem profile for python3 (PYTHONMALLOC=malloc), goal memory, 2026-11-22: chosen from what was
# tried on several scripts (docs/decisions/0044).
# Measured: env PYTHONMALLOC=malloc PYTHONHASHSEED=0 /usr/bin/python3
# bench/programs/inputs/churn.py 250
# Against the default: peak RSS -1.6 % (-2.3 % to -1.5 %), processor time +1.1 % (-12.6 % to +6.9
# %), in 5 interleaved pairs (median, 95 % interval); 34.5 MiB instead of 35.2 MiB.
# docs/PROFILES.md has other input.
profile_format=1
hakmem_version=0.1.0

# What is free beyond a megabyte goes back at once. Without this line syntax trees (python3.py)
# take 0.5 % less than the default instead of 8.3 %, orders.py 2.3 % instead of 6.5 %; 256 KiB
# instead of a megabyte are less by another 1 % of the peak, for more page faults.
excess_bytes=1M

# No empty slab waits for the next burst: without this line orders.py takes 5.1 % less instead of
# 6.5 %.
retain_slabs=0

# No freed mapping waits for the next large block: without this line tests of python3 itself take
# 10.4 % less instead of 14.8 %.
huge_cache_bytes=0

# What is free for long goes back in a tenth of the time: without this line python3.py takes 4.0 %
# less instead of 8.0 % on a busy machine, tests of python3 12.7 % instead of 14.8 %.
purge_delay_ms=50
