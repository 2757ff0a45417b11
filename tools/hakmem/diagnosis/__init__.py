"""What `hakmem doctor` finds out.

Modules, lowest first: finding (one line of the answer), surface (the names that hakmem replaces),
machine (the settings of kernel and cgroup), bindings (where the calls of a running process lead),
trial (where those of a program would), process and command (a whole examination of each).
"""
