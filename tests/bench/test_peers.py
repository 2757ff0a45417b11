"""The table of allocators, and the way that crates become libraries to preload."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from pathlib import Path

import pytest

from harness import cargo, cases, identity, peers, setup, verifying, workshop
from harness.cargo import Crate
from harness.errors import BenchError
from harness.layout import PEER_LOCKS, TOP

CRATE = Crate(
    name="some-sys",
    version="1.2.3",
    holds="some 1",
    features=("one", "two"),
    default_features=False,
    undefined=("also",),
    aliases={"malloc": "own_malloc", "free": "own_free"},
    c_flags=("-DX=1",),
)

# Stands in for cargo: compiles what the crate would, and notes how it was called.
CARGO = """#!/bin/sh
set -e
echo "$PWD $* CFLAGS=$CFLAGS" >>"$CALLS"
if [ "$1" = generate-lockfile ]; then
    printf '[[package]]\\nname = "newer"\\nsource = "registry+here"\\nchecksum = "2"\\n' >Cargo.lock
    exit 0
fi
[ -z "$BROKEN" ] || { echo "error: it does not compile"; exit 101; }
grep -q '^version = "=1.2.3"$' Cargo.toml
name=$(basename "$PWD")
mkdir -p target/release
echo "const char *said = \\"$SAYS\\"; void *malloc(unsigned long n) { (void)n; return 0; }" >own.c
gcc -shared -fPIC -fno-builtin -o "target/release/lib$name.so" own.c
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cargo of ours first in PATH, folders of ours; its calls are in this file."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in {"cargo": CARGO, "rustc": "#!/bin/sh\n"}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setattr(cargo, "PEERS", tmp_path / "peers")
    monkeypatch.setattr(cargo, "PEER_LOCKS", tmp_path)
    return tmp_path / "calls"


def test_debug_build_is_refused(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """snmalloc was measured with its assertions for weeks."""
    monkeypatch.setenv("SAYS", "assert fail: {} in {} on {}")
    with pytest.raises(BenchError, match="debug assertions"):
        cargo.build("mine", CRATE)
    assert not (calls.parent / "peers" / "libmine.so").exists()
    monkeypatch.delenv("SAYS")
    assert cargo.build("mine", CRATE).is_file()


def test_crate_is_built_once_for_each_recipe(calls: Path) -> None:
    library = cargo.build("some", CRATE)
    assert library.is_file() and cargo.is_current("some", CRATE)
    assert "CFLAGS=-DX=1" in calls.read_text() and "build --release " in calls.read_text()
    cargo.build("some", CRATE)
    assert len(calls.read_text().splitlines()) == 1
    other = dataclasses.replace(CRATE, features=("one",))
    assert not cargo.is_current("some", other)
    cargo.build("some", other)
    assert "--locked" not in calls.read_text()


def test_pins_are_kept_without_a_registry_and_built_with_one(calls: Path) -> None:
    pins = '[[package]]\nname = "wanted"\nchecksum = "1"\n'
    (calls.parent / "some.lock").write_text(pins)
    cargo.build("some", CRATE)
    lock = (calls.parent / "peers/crates/some/Cargo.lock").read_text()
    assert lock == pins.replace("checksum", 'source = "registry+here"\nchecksum')
    assert cargo.pins_of(lock) == pins
    assert [line.split()[1] for line in calls.read_text().splitlines()] == [
        "generate-lockfile", "build",
    ]  # fmt: skip
    assert "--locked" in calls.read_text()
    (calls.parent / "some.lock").write_text(pins.replace('"1"', '"3"'))
    assert not cargo.is_current("some", CRATE)
    cargo.build("some", CRATE)
    assert 'checksum = "3"' in (calls.parent / "peers/crates/some/Cargo.lock").read_text()


def test_failed_build_shows_the_end_of_its_output(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(BenchError, match="it does not compile"):
        cargo.build("some", CRATE)
    assert not cargo.is_current("some", CRATE)
    assert "build.log" in calls.parent.joinpath("peers/crates/some/build.log").name


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cargo, "PEERS", tmp_path / "peers")
    told = cargo.missing_tools()
    assert any(text.startswith("cargo (") and "rustup" in text for text in told)
    assert "c++ (Debian package g++)" in told
    with pytest.raises(BenchError, match=r"some cannot be built: missing cargo \("):
        cargo.build("some", CRATE)
    absent = peers.Allocator("some", tmp_path / "x.so", crate=CRATE)
    assert "bench setup builds it from crate some-sys 1.2.3" in peers.missing_text(absent)
    assert "which needs cargo" in peers.missing_text(absent)
    assert len(setup.build_crates([absent])) == 1


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_setup_is_done_when_nothing_is_missing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    installed: bool,
    whole: bool,
) -> None:
    absent = peers.Allocator("some", tmp_path / "x.so", crate=CRATE)
    monkeypatch.setattr(peers, "known", lambda: {} if whole else {"some": absent})
    monkeypatch.setattr(cases, "real", list)
    monkeypatch.setattr(workshop, "build", lambda: tmp_path)
    monkeypatch.setattr(setup, "install_packages", lambda: installed)
    monkeypatch.setattr(setup, "build_crates", lambda _: ["some: made up"])
    assert setup.everything() is (installed and whole)
    told = capsys.readouterr().err
    assert "some: made up" in told
    assert ("still missing: some" in told) is not whole
    assert ("everything that is compared is on this machine" in told) is whole


def test_crate_is_told_what_to_pull_and_to_export(tmp_path: Path) -> None:
    arguments = CRATE.link_arguments(tmp_path / "exports.map")
    assert "-Wl,-u,own_malloc" in arguments and "-Wl,-u,also" in arguments
    assert "-Wl,--defsym=free=own_free" in arguments
    manifest = CRATE.manifest("some")
    assert 'crate-type = ["cdylib"]' in manifest
    assert 'version = "=1.2.3"\ndefault-features = false\nfeatures = ["one", "two"]' in manifest
    script = CRATE.build_script(tmp_path / "exports.map")
    assert script.count("cargo:rustc-cdylib-link-arg=") == len(arguments)
    assert CRATE.build == "crate some-sys 1.2.3 [one, two], -DX=1"
    with pytest.raises(BenchError, match="crate x: "):
        Crate.read({"name": "x", "colour": "red"})


def test_every_crate_is_pinned_with_all_that_it_needs() -> None:
    crates = {each.name: each.crate for each in peers.known().values() if each.crate is not None}
    assert len(crates) == 8
    for name, crate in crates.items():
        lock = (PEER_LOCKS / f"{name}.lock").read_text()
        found = re.search(rf'name = "{crate.name}"\nversion = "([^"+]+)', lock)
        assert found is not None and found[1] == crate.version, name
        assert lock.count("checksum = ") == lock.count("[[package]]") - 1, name


def test_modes_are_one_library_in_several_settings() -> None:
    table = peers.known()
    modes = [each for each in table.values() if each.kind == "own"]
    assert len({each.library for each in modes}) == 1 and len(modes) == 5
    assert table["hakmem_lean"].settings()["HAKMEM_MODE"] == "lean"
    assert "LD_PRELOAD" not in table["glibc"].settings()


def test_choice() -> None:
    default, missing = peers.choose(None, [])
    names = [each.name for each in [*default, *missing]]
    assert "hakmem_research" not in names and "glibc" in names
    chosen, missing = peers.choose(None, [], quick=True)
    assert {each.name for each in [*chosen, *missing]} < set(names)
    chosen, _ = peers.choose(["floor", "glibc"], ["own=/tmp/../tmp/x.so"])
    assert [each.name for each in chosen] == ["floor", "glibc", "own"]
    with pytest.raises(BenchError, match="no allocator 'nonesuch'"):
        peers.choose(["nonesuch"], [])
    with pytest.raises(BenchError, match="NAME=PATH"):
        peers.choose(["glibc"], ["just-a-name"])


@pytest.mark.parametrize(
    ("folder", "sign"), [("my tree", "a space"), ("a:b", "a colon"), ("$LIB", "a dollar")]
)
def test_a_path_that_the_loader_would_divide_is_told(
    tmp_path: Path, folder: str, sign: str
) -> None:
    """And is no matter of what is found inside the process."""
    library = tmp_path / folder / "own.so"
    library.parent.mkdir()
    library.touch()
    with pytest.raises(BenchError, match=f"^own: .*cannot be preloaded, since there is {sign} in"):
        peers.choose(["glibc"], [f"own={library}"])
    chosen, _ = peers.choose(["glibc"], [f"own={tmp_path / 'own.so'}"])
    assert len(chosen) == 2


def test_named_allocator_that_is_missing_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    absent = peers.Allocator("absent", tmp_path / "x.so", package="libabsent")
    monkeypatch.setattr(peers, "known", lambda: {"absent": absent})
    with pytest.raises(BenchError, match="Debian package libabsent"):
        peers.choose(["absent"], [])
    assert peers.choose(None, []) == ([], [absent])


def test_identity_says_which_build_it_is(built: Path) -> None:
    told = identity.identity(peers.known()["glibc"])
    assert str(told["build"]).startswith("Debian package libc6 2.")
    assert len(str(told["build_id"])) == 40 and len(str(told["sha256"])) == 64
    assert "GCC" in str(identity.identity(peers.known()["floor"])["compiler"])
    crate = peers.known()["mimalloc3"]
    assert identity.identity(crate)["build"] == "crate libmimalloc-sys 0.1.49 [override]"


def test_flags_of_the_caller_are_told(tmp_path: Path) -> None:
    """They reach hakmem by CMake and not the crates, so that a comparison is of them as well."""
    library = tmp_path / "libhakmem.so.0"
    library.touch()
    (tmp_path / "linked.so").symlink_to(library)
    own = peers.Allocator("own", tmp_path / "linked.so", made_by="make lib")
    assert identity.identity(own)["build"] == "make lib"
    lines = [f"CMAKE_{name}:STRING={value}\n" for name, value in {
        "CXX_FLAGS": " -O3 -g", "CXX_FLAGS_RELEASE": "-O1", "C_FLAGS": "", "C_FLAGS_DEBUG": "-g",
    }.items()]  # fmt: skip
    (tmp_path / "CMakeCache.txt").write_text("".join(lines))
    assert identity.identity(own)["build"] == "make lib, CXXFLAGS -O3 -g"
    text = "".join(lines).replace("C_FLAGS:STRING=\n", "C_FLAGS:STRING=-O3 -march=native\n")
    (tmp_path / "CMakeCache.txt").write_text(text)
    told = "make lib, CXXFLAGS -O3 -g, CFLAGS -O3 -march=native"
    assert identity.identity(own)["build"] == told


def test_every_allocator_on_this_machine_is_proven(built: Path) -> None:
    """Those that are installed serve, in fact: a recipe that exports no malloc is found here."""
    statements = verifying.of_allocators(None, [])
    assert {"glibc", "floor"} <= {each["allocator"] for each in statements}
    assert [each["why"] for each in statements if not each["holds"]] == []


def test_setup_script_refuses_what_it_does_not_know() -> None:
    script = Path(TOP / "scripts" / "setup")
    done = subprocess.run([str(script), "--nonesuch"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "usage:" in done.stderr
