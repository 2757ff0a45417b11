#!/usr/bin/env python3
"""Learns the profile of a program from its input in programs.toml: learn.py NAME [OPTIONS], where
OPTIONS are those of `hakmem tune`. `./hakmem bench profiles NAME` measures it."""

import os
import shlex
import sys
import tomllib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

os.chdir(FOLDER.parent)
name, *options = sys.argv[1:] or ["nothing"]
programs = tomllib.loads((FOLDER / "programs.toml").read_text(encoding="utf-8"))
if name not in programs:
    sys.exit(f"profiles/learn.py: {name} is none of {', '.join(programs)}")
tune = ["./hakmem", "tune", "--any-build", "--output", f"profiles/{name}.profile"]
os.execv(tune[0], [*tune, *options, "--", *shlex.split(programs[name]["learn"])])
