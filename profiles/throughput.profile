# Operations per second first, for heaps that stay: larger caches, fewer trips to the slabs, huge pages. A heap that
# grows and shrinks by hundreds of megabytes waits for the kernel to find huge pages (docs/PROFILES.md).
profile_format=1
cache_start_bytes=32K
cache_class_bytes=1M
cache_heap_bytes=16M
retain_slabs=16
purge_delay_ms=5000
slab_purge_delay_ms=10000
huge_pages=always
