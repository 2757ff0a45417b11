"""What outlives a heap: a page about it, a series of snapshots, and what grew between two."""
