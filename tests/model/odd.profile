# Few classes of odd sizes, slabs of odd sizes, no power of two but the last: what a table may be at its worst.
profile_format=1
size_class=16
size_class=48:3
size_class=112:2
size_class=1008:1
size_class=3024:7
size_class=20000:32
size_class=40016:1
size_class=65536:3
prewarm=48:100
