"""Builds allocators that come as Rust crates, as libraries to preload.

Each one is a crate of its own without any code: it depends on the crate that compiles the
allocator, and tells the linker to pull malloc out of it and to export the C library's names, which
rustc would hide. All versions are pinned: the crate's in bench/allocators.toml, those of what it
needs in bench/peers/NAME.lock, which is cargo's lock file without the lines that name a registry:
cargo says itself which one it uses.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .errors import BenchError
from .layout import PEER_LOCKS, PEERS, display

# What a library to preload has to export: malloc's family, the C++ operators, pthread_create where
# an allocator watches the ends of threads, and the allocators' own statistics.
EXPORTS = (
    "malloc", "free", "cfree", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc",
    "posix_memalign", "valloc", "pvalloc", "malloc_usable_size", "free_sized", "free_aligned_sized",
    "_Znw*", "_Zna*", "_Zdl*", "_Zda*", "pthread_create",
    "mallctl*", "mi_*", "rpmalloc_*", "sn_*", "MallocExtension_*",
)  # fmt: skip
# What the assertions of snmalloc, mimalloc, jemalloc and the C library's assert() say, or call.
ASSERTIONS = (
    b"assert fail: ", b"mimalloc: assertion failed", b"Failed assertion: ", b"__assert_fail",
)  # fmt: skip
WHERE_CARGO_IS = "https://rustup.rs, or Debian packages cargo-web and rustc-web"
TAIL_CHARACTERS = 2000
SOURCE = re.compile(r'source = "')


@dataclass(frozen=True)
class Crate:
    """What cargo builds, and how its malloc is taken out."""

    name: str
    version: str
    # The allocator inside and its version, for people.
    holds: str
    features: tuple[str, ...] = ()
    default_features: bool = True
    # Symbols beside malloc that pull further objects out of the archive.
    undefined: tuple[str, ...] = ()
    # Names of the C library and of C++, and the allocator's own functions that they become.
    aliases: Mapping[str, str] = field(default_factory=dict)
    c_flags: tuple[str, ...] = ()

    @classmethod
    def read(cls, row: Mapping[str, object]) -> Crate:
        """A `crate` table of bench/allocators.toml; lists become tuples."""
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
        try:
            return cls(**values)  # type: ignore[arg-type]
        except TypeError as error:
            raise BenchError(f"bench/allocators.toml: crate {row.get('name')}: {error}") from error

    @property
    def build(self) -> str:
        """How it was built, for tables."""
        flags = f", {' '.join(self.c_flags)}" if self.c_flags else ""
        return f"crate {self.name} {self.version} [{', '.join(self.features)}]{flags}"

    def link_arguments(self, exports: Path) -> list[str]:
        """What the linker is told, one argument each."""
        pulled = [self.aliases.get("malloc", "malloc"), *self.undefined]
        return [
            *(f"-Wl,-u,{symbol}" for symbol in pulled),
            *(f"-Wl,--defsym={name}={function}" for name, function in self.aliases.items()),
            "-Wl,--undefined-version",
            f"-Wl,--version-script={exports}",
        ]

    def manifest(self, name: str) -> str:
        """Cargo.toml of the crate around it."""
        features = ", ".join(f'"{feature}"' for feature in self.features)
        return f"""[package]
name = "{name}"
version = "0.0.0"
edition = "2021"

[lib]
crate-type = ["cdylib"]

[dependencies.{self.name}]
version = "={self.version}"
default-features = {str(self.default_features).lower()}
features = [{features}]

[profile.release]
opt-level = 3
panic = "abort"
"""

    def build_script(self, exports: Path) -> str:
        """build.rs of the crate around it."""
        lines = [
            f'    println!("cargo:rustc-cdylib-link-arg={argument}");'
            for argument in self.link_arguments(exports)
        ]
        return "\n".join(["fn main() {", *lines, "}", ""])


def write_sources(name: str, crate: Crate, folder: Path) -> None:
    """Lays the crate out; a file that is already right keeps its time, so that cargo rests."""
    exports = folder / "exports.map"
    texts = {
        "Cargo.toml": crate.manifest(name),
        "build.rs": crate.build_script(exports),
        "src/lib.rs": f"extern crate {crate.name.replace('-', '_')};\n",
        "exports.map": "{ global: " + " ".join(f"{symbol};" for symbol in EXPORTS) + " };\n",
    }
    for file, text in texts.items():
        path = folder / file
        if not path.is_file() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def pins_of(lock: str) -> str:
    """A lock file of cargo as it is kept in bench/peers."""
    return "".join(line for line in lock.splitlines(keepends=True) if not SOURCE.match(line))


def pin(name: str, folder: Path) -> None:
    """Gives the crate the kept lock file, with the registry that cargo names in one of its own."""
    pins = PEER_LOCKS / f"{name}.lock"
    lock = folder / "Cargo.lock"
    if not pins.is_file() or (lock.is_file() and pins_of(lock.read_text()) == pins.read_text()):
        return
    lock.unlink(missing_ok=True)
    _run_cargo(name, folder, "generate-lockfile")
    source = next((line for line in lock.read_text().splitlines() if SOURCE.match(line)), "")
    lines = pins.read_text().splitlines()
    filled = [[source, line] if line.startswith("checksum = ") else [line] for line in lines]
    lock.write_text("\n".join(line for group in filled for line in group) + "\n")


def recipe_hash(name: str, crate: Crate) -> str:
    """Changes when a library has to be built anew."""
    lock = PEER_LOCKS / f"{name}.lock"
    pins = lock.read_text() if lock.is_file() else ""
    return hashlib.sha256(f"{crate}{EXPORTS}{pins}".encode()).hexdigest()


def is_current(name: str, crate: Crate) -> bool:
    """Whether the library was built by the recipe as it is now."""
    stamp = PEERS / f"lib{name}.recipe"
    built = (PEERS / f"lib{name}.so").is_file()
    return built and stamp.is_file() and stamp.read_text() == recipe_hash(name, crate)


def missing_tools() -> list[str]:
    """What building crates needs and is not there, each with where to get it."""
    wanted = {
        "cargo": WHERE_CARGO_IS,
        "rustc": WHERE_CARGO_IS,
        "cc": "Debian package gcc",
        "c++": "Debian package g++",
        "make": "Debian package make",
    }
    return [f"{tool} ({source})" for tool, source in wanted.items() if shutil.which(tool) is None]


def refuse_debug_build(name: str, library: Path) -> None:
    """A peer with its developers' assertions is not what anybody would run."""
    held = library.read_bytes()
    for text in ASSERTIONS:
        if text in held:
            raise BenchError(
                f"{name} has its debug assertions ({text.decode()!r} in {library.name}):"
                " bench/allocators.toml must turn them off"
            )


def build(name: str, crate: Crate) -> Path:
    """Builds lib<name>.so into build/bench/peers when it is missing or its recipe changed."""
    library = PEERS / f"lib{name}.so"
    PEERS.mkdir(parents=True, exist_ok=True)
    with (PEERS / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_current(name, crate):
            return library
        missing = missing_tools()
        if missing:
            raise BenchError(f"{name} cannot be built: missing {', '.join(missing)}")
        folder = PEERS / "crates" / name
        write_sources(name, crate, folder)
        pin(name, folder)
        locked = ["--locked"] if (folder / "Cargo.lock").is_file() else []
        _run_cargo(name, folder, "build", "--release", *locked, c_flags=crate.c_flags)
        made = folder / "target" / "release" / f"lib{name}.so"
        refuse_debug_build(name, made)
        fresh = library.with_suffix(".new")
        shutil.copy2(made, fresh)
        fresh.replace(library)
        (PEERS / f"lib{name}.recipe").write_text(recipe_hash(name, crate))
    return library


def _run_cargo(name: str, folder: Path, *words: str, c_flags: Sequence[str] = ()) -> None:
    environment = dict(os.environ)
    for variable in ("LD_PRELOAD", "RUSTFLAGS", "MAKEFLAGS", "MFLAGS", "CARGO_TARGET_DIR"):
        environment.pop(variable, None)
    environment["CFLAGS"] = environment["CXXFLAGS"] = " ".join(c_flags)
    log = folder / "build.log"
    with log.open("w") as output:
        done = subprocess.run(
            ["cargo", *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        tail = log.read_text(errors="replace")[-TAIL_CHARACTERS:]
        raise BenchError(f"{name}: cargo failed; all of its output is in {display(log)}\n{tail}")
