# Operations per second first: larger caches, fewer trips to the slabs and to the system.
profile_format=1
cache_start_bytes=32K
cache_class_bytes=1M
cache_heap_bytes=16M
retain_slabs=16
purge_delay_ms=5000
slab_purge_delay_ms=10000
