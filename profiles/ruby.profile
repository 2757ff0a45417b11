# hakmem profile for ruby, goal memory: the part of what hakmem tune learned on 2026-11-21 that another
# script bears as well.
# Recorded and measured: ruby bench/programs/inputs/churn.rb 400
# Against the default: peak RSS -13.7 % (-13.7 % to -13.6 %), processor time -11.6 % (-13.1 % to
# -4.8 %), in 7 interleaved pairs (median, 95 % interval). On ruby profiles/inputs/ruby.rb 100: peak
# RSS -0.3 % (-0.5 % to -0.0 %), processor time +2.5 % (-5.1 % to +10.4 %), in 7.
profile_format=1
hakmem_version=0.1.0

# Small caches, early purge, nothing kept for later. Purging at once and size classes are left out:
# another script took 4.5 % longer with them.
mode=lean
