"""Real programs of the benchmark: each with a fixed input, run under a preloaded allocator."""

from __future__ import annotations

from .base import Outcome, RealProgram
from .compilers import Gcc, Gxx
from .ghostscript import Ghostscript
from .git import GitGc
from .java import Java
from .lua import Lua
from .memcached import Memcached
from .nginx import Nginx
from .node import Node
from .perl import Perl
from .php import Php
from .postgres import Postgres
from .python import Python, PythonTests
from .redis import Redis
from .rocksdb import Rocksdb
from .ruby import Ruby
from .sqlite import Sqlite
from .z3 import Z3

__all__ = ["Outcome", "RealProgram", "known"]


def known() -> list[RealProgram]:
    """All of them, installed or not, in the order in which tables show them."""
    return [
        Redis(),
        Memcached(),
        Nginx(),
        Postgres(),
        Rocksdb(),
        Sqlite(),
        Python(),
        PythonTests(),
        Ruby(),
        Php(),
        Lua(),
        Perl(),
        Node(),
        Java(),
        Gcc(),
        Gxx(),
        GitGc(),
        Ghostscript(),
        Z3(),
    ]
