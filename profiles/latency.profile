# The slowest calls first: fewer steps that take long. Empty runs and mappings that fell free stay for ten seconds, as much as
# excess_bytes lets stay at all, and free pages inside slabs a third of a second at first, up to twenty where they are wanted
# again, so that hardly a call waits for the system to give pages back or bring them in, and refills are short.
profile_format=1
purge_delay_ms=10000
slab_purge_delay_ms=20000
refault_permille=0
retain_slabs=16
decay_interval_ms=1000
refill_blocks=31
