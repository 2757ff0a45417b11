"""The reader of the inspect ABI: what the heap of a process looks like, from outside it.

Modules, lowest first: model (what was seen) with totals, findings and jsonform; errors, files;
memory with its sources process and corefile; root and layout (the target's own tables); rings,
held, picture, blocks, walk (from memory to blocks); facts, callers, heaps, check; residency,
waterfall, resident; reading (a session with one target), freeze, targets (what a user may name);
text.
"""
