"""Syntax trees of the standard library, kept for a while, and what they compile to."""

import ast
import sys
from pathlib import Path

kept: list[ast.AST] = []
codes = []
for file in sorted(Path(ast.__file__).parent.glob("*.py"))[: int(sys.argv[1])]:
    tree = ast.parse(file.read_bytes())
    kept.append(tree)
    if len(kept) > 8:
        kept.pop(0)
    codes.append(compile(tree, str(file), "exec"))
print(len(kept), len(codes))
