"""What fits hakmem to a program: a recording of it, what follows from it, and whether that is
better.

`recorder` looks at a program, `recording` says what was seen, `classes` fits a table of size
classes to it, `proposal` turns it into settings to try, `trial` measures them in pairs,
`profile_file` writes what won. `hakmem.commands.tune` puts them together.
"""
