"""`hakmem top`: live heaps on a terminal.

Modules, lowest first: sampler (looks at processes, keeps rates and history), tables and drawing
(what was seen, as rows and as characters), frame (one frame as text or JSON), app (the screen, the
only module that needs textual).
"""
