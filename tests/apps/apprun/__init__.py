"""Runs real programs with and without a preloaded malloc and compares what they do."""
