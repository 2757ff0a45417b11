"""Every rule of tools/tidy must catch a planted violation, and only that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tidy import rules, tidy
from tidy.tree import Finding, Tree

ROOT = Path(__file__).resolve().parents[2]

CLEAN = {
    "src/base/atomic.h": "#pragma once\n#define atomic_load_relaxed(f) 0\n",
    "src/config/options.def": 'OPTION(mode, ENUM, 0, 0, 3, "", START, "help")\n',
    "src/os/os.h": '#pragma once\n#include "base/atomic.h"\n#include <sys/mman.h>\n',
    "src/heap/slab.h": (
        '#pragma once\n#include "os/os.h"\n'
        "struct slab {\n"
        "    // Release by the freer, pairs with the owner's acquire exchange.\n"
        "    _Atomic(uint64_t) remote;\n"
        "    _Atomic(uint64_t) other;\n"
        "    int plain;\n"
        "};\n"
        "void slab_take(struct slab *slab, _Atomic(uint64_t) *word);\n"
        "HIDDEN extern struct slab slab_none;\n"
        "extern __thread struct slab *slab_own;\n"
        "HIDDEN extern _Atomic(uint32_t) slab_count;  // relaxed: a guess\n"
        "extern void slab_give(struct slab *slab, void (*hook)(struct slab *));\n"
    ),
    "src/heap/slab.c": (
        '#include "heap/slab.h"\n'
        "void slab_take(struct slab *slab, _Atomic(uint64_t) *word) {\n"
        "    _Atomic(uint64_t) *local = word;\n"
        "}\n"
    ),
    "src/api/alloc.c": '#ifdef __x86_64__\n#endif\n#include "heap/slab.h"\n',
    "docs/MEMORY_ORDER.md": (
        "### src/heap/slab.h\n\n| atomic | order |\n|---|---|\n| `remote`, `other` | release |\n"
    ),
    "README.md": "Set HAKMEM_MODE=lean or HAKMEM_CONF=mode:lean.\n",
}


def find(root: Path, planted: dict[str, str]) -> list[Finding]:
    for name, text in {**CLEAN, **planted}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return rules.check(Tree(root))


def test_clean_tree_has_no_findings(tmp_path: Path) -> None:
    assert find(tmp_path, {}) == []


@pytest.mark.parametrize(
    ("rule", "line", "path", "text"),
    [
        ("layers", 1, "src/os/up.c", '#include "heap/slab.h"\n'),
        ("layers", 2, "src/base/up.c", '\n#  include "config/options.h"\n'),
        ("layers", 1, "src/heap/short.c", '#include "slab.h"\n'),
        ("layers", 1, "src/new_folder/x.c", "int x;\n"),
        ("source-includes", 1, "src/heap/whole.c", '#include "heap/slab.c"\n'),
        ("source-includes", 1, "tests/unit/test.c", '#include "../../src/heap/slab.c"\n'),
        ("conditionals", 2, "src/heap/some.c", "int x;\n#if DEBUG\n#endif\n"),
        ("conditionals", 1, "src/control/some.c", "  # ifndef NDEBUG\n"),
        ("conditionals", 1, "src/config/other.def", "#ifdef X\n"),
        ("conditionals", 1, "src/os/guard.h", "#ifndef GUARD_H\n"),
        ("platform", 1, "src/heap/map.c", "#include <sys/mman.h>\n"),
        ("platform", 1, "src/thread/wait.c", "#include <linux/futex.h>\n"),
        ("platform", 1, "src/control/clock.c", "#include <time.h>\n"),
        ("options", 1, "src/heap/own.c", 'const char *x = getenv("HAKMEM_MODE");\n'),
        ("options", 1, "src/config/own.c", 'const char *x = secure_getenv("HAKMEM_X");\n'),
        ("options", 1, "docs/GUIDE.md", "Run with HAKMEM_SPEED=11.\n"),
        ("atomics", 2, "src/heap/field.h", "#pragma once\n_Atomic(uint32_t) silent;\n"),
        ("atomics", 1, "src/heap/field.c", "static _Atomic(void *) head = NULL;\n"),
        ("atomics", 2, "src/heap/chat.c", "// The counter.\nstatic atomic_uint counter;\n"),
        ("atomics", 1, "src/heap/array.c", "static _Atomic(void **) top[64];\n"),
        ("atomics", 2, "src/heap/pointer.c", "struct a {\n    _Atomic(uint64_t) *bits;\n};\n"),
        ("atomics", 1, "src/heap/builtin.c", "    __atomic_store_n(&x, 1, __ATOMIC_RELEASE);\n"),
        ("atomics", 1, "src/heap/implicit.c", "    atomic_store(&x, 1); // relaxed\n"),
        ("atomics", 1, "src/heap/raw.c", "    atomic_load_explicit(&x, order); // relaxed\n"),
        (
            "atomics",
            3,
            "src/heap/line.h",
            "#pragma once\nstruct a {\n    _Alignas(LINE) _Atomic(struct run *) list;\n};\n",
        ),
        (
            "memory-order",
            3,
            "src/heap/field.h",
            "#pragma once\n// Relaxed.\n_Atomic(uint32_t) unknown;\n",
        ),
        (
            "memory-order",
            2,
            "src/heap/field.c",
            "// Relaxed.\nstatic _Alignas(64) _Atomic(struct a *) unknown[8] = {NULL};\n",
        ),
        (
            "memory-order",
            2,
            "src/heap/slab.c",
            "// Relaxed.\nstatic _Atomic(int) remote;\n",
        ),
        ("hidden", 2, "src/heap/object.h", "#pragma once\nextern struct heap heap;\n"),
        ("hidden", 2, "src/heap/table.h", "#pragma once\nextern const struct row rows[COUNT];\n"),
        ("hidden", 2, "src/heap/old.h", "#pragma once\nextern int old __attribute__((weak));\n"),
        ("hidden", 2, "src/heap/w.h", "#pragma once\nextern _Atomic(void *) w[3];  // relaxed\n"),
        ("hidden", 2, "src/heap/hook.h", "#pragma once\nextern void (*hook)(struct heap *heap);\n"),
        ("lengths", 600, "src/heap/long.c", "int x;\n" * 801),
        ("lengths", 600, "tools/long.py", "x = 1\n" * 801),
        ("wording", 1, "docs/NOTE.md", f"Get it from https://{'pypi'}.org/simple.\n"),
        ("wording", 1, "scripts/run", "cd /home/somebody/hakmem\n"),
        ("wording", 1, "src/heap/later.c", "int x; // TODO: more\n"),
    ],
)
def test_rule_catches(tmp_path: Path, rule: str, line: int, path: str, text: str) -> None:
    # An atomic that breaks another rule is not in the document either.
    own = {rule} if rule == "memory-order" else set(rules.RULES) - {"memory-order"}
    findings = [finding for finding in find(tmp_path, {path: text}) if finding.rule in own]
    assert [(f.rule, f.path, f.line, f.warning) for f in findings] == [(rule, path, line, False)]


@pytest.mark.parametrize(
    ("order", "operation", "wrong"),
    [
        ("relaxed", "atomic_load_relaxed(&slab->remote[at])", False),
        ("release", "atomic_store_release(&slab->remote, (int)value)", False),
        ("acquire pairs with the release", "atomic_exchange_acq_rel(&a(b, c)->remote, 0)", False),
        ("relaxed", "atomic_load_acquire(&slab->remote[at])", True),
        ("release", "atomic_or_acq_rel(&slab->remote, 1)", True),
        ("acquire and release", "atomic_load_acquire(&slab->remote)", True),
        ("step 2 above", "atomic_load_acquire(&slab->remote)", False),
    ],
)
def test_orders_of_the_document_are_those_of_the_source(
    tmp_path: Path, order: str, operation: str, wrong: bool
) -> None:
    planted = {
        "docs/MEMORY_ORDER.md": f"### src/heap/slab.h\n| `remote`, `other` | {order} |\n",
        "src/heap/slab.c": f"void use(void) {{\n    {operation};\n}}\n",
    }
    findings = [finding for finding in find(tmp_path, planted) if finding.rule == "memory-order"]
    assert [(f.path, f.line) for f in findings] == ([("docs/MEMORY_ORDER.md", 2)] if wrong else [])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "### src/heap/slab.h\n| `remote` |\n| `other` |\n| `gone` |\n",
            "src/heap/slab.h has no gone",
        ),
        (
            "### src/heap/slab.h\n| `remote`, `other` |\n### src/heap/no.h\n| `x` |\n",
            "no.h has no x",
        ),
    ],
)
def test_row_without_its_atomic(tmp_path: Path, row: str, message: str) -> None:
    findings = find(tmp_path, {"docs/MEMORY_ORDER.md": row})
    assert [(f.rule, f.path) for f in findings] == [("memory-order", "docs/MEMORY_ORDER.md")]
    assert message in findings[0].message


@pytest.mark.parametrize("path", ["src/heap/long.c", "tests/unit/long.c"])
def test_rather_long_file_is_a_warning(tmp_path: Path, path: str) -> None:
    assert [f.warning for f in find(tmp_path, {path: "int x;\n" * 601})] == [True]
    assert find(tmp_path, {path: "int x;\n" * 600}) == []


def test_circle_of_two_siblings(tmp_path: Path) -> None:
    planted = {
        "src/space/arena.h": "#pragma once\n",
        "src/space/arena.c": '#include "space/arena.h"\n#include "space/map.h"\n',
        "src/space/map.h": "#pragma once\n",
        "src/space/map.c": '#include "space/map.h"\n#include "space/arena.h"\n',
    }
    findings = find(tmp_path, planted)
    assert [(f.rule, f.path, f.line) for f in findings] == [("cycles", "src/space/arena.c", 2)]
    assert findings[0].message.endswith("space/arena -> space/map -> space/arena")


def test_circle_of_three_siblings(tmp_path: Path) -> None:
    ring = {
        f"src/space/{own}.h": f'#pragma once\n#include "space/{other}.h"\n'
        for own, other in (("one", "two"), ("two", "three"), ("three", "one"))
    }
    assert {f.rule for f in find(tmp_path, ring)} == {"cycles"}
    ring["src/space/three.h"] = "#pragma once\n"
    assert find(tmp_path, ring) == []


def test_program_fails_on_a_finding_and_names_it(tmp_path: Path) -> None:
    find(tmp_path, {"src/os/up.c": '#include "heap/slab.h"\n'})
    command = [sys.executable, str(ROOT / "tools/tidy/tidy.py"), str(tmp_path)]
    failed = subprocess.run(command, capture_output=True, text=True)
    assert failed.returncode == 1
    assert failed.stdout.startswith("src/os/up.c:1: os/ includes")
    (tmp_path / "src/os/up.c").unlink()
    passed = subprocess.run(command, capture_output=True, text=True)
    assert (passed.returncode, passed.stdout) == (0, "")


def test_files_that_git_ignores_are_not_looked_at(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("/build/\n", encoding="utf-8")
    assert find(tmp_path, {"build/x/src.c": '#include "y.c"\n'}) == []
    assert [f.path for f in find(tmp_path, {"other/x.c": '#include "y.c"\n'})] == ["other/x.c"]


def test_what_git_refuses_is_said_in_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree of another user's, as root in a container has one."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(SystemExit, match=rf"(?s)^tidy: git lists no .* {tmp_path}: .*safe\.dir"):
        Tree(tmp_path)


@pytest.fixture
def styled(tmp_path: Path) -> Path:
    """A small tree that passes all style checks."""
    for name in (".clang-format", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "x.c").write_text("int x;\n", encoding="utf-8")
    (tmp_path / "tools").mkdir()
    docs = "import sys\n\nsys.exit(0)\n"
    (tmp_path / "tools/gen_docs.py").write_text(docs, encoding="utf-8")
    return tmp_path


def test_style_of_a_clean_tree(styled: Path) -> None:
    assert tidy.check_style(Tree(styled))


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("x.c", "int  x ;\n", "clang-format"),
        ("unformatted.py", "x = { 1 }\n", "ruff format"),
        ("unused.py", "import os\n", "ruff"),
        ("untyped.py", "def f(x):  # type-less\n    return x\n", "mypy"),
        ("wrong.py", 'x: int = "1"\n', "mypy"),
        ("tools/gen_docs.py", "import sys\n\nsys.exit(1)\n", "generated docs"),
    ],
)
def test_style_catches(
    styled: Path, path: str, text: str, complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (styled / path).write_text(text, encoding="utf-8")
    assert not tidy.check_style(Tree(styled))
    assert f"tidy: {complaint}: failed" in capfd.readouterr().err.splitlines()
