# Memory first: small caches, early purge. The presets of HAKMEM_MODE=lean.
profile_format=1
mode=lean
