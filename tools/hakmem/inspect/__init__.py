"""The reader of the inspect ABI: what the heap of a process looks like, from outside it.

Modules, lowest first: model (what was seen), jsonform (the model as JSON), then the memory sources,
the root and its tables, the walk, residency and waterfall, oddities, text.
"""
