"""Checks the repository's own rules: tidy.py [--style] [--lint] [--all] [ROOT]."""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tidy import rules
from tidy.tree import Tree

SCRIPTS = ("hakmem", "tests/apps/apprun")  # Python programs without a suffix


def tool(name: str) -> str:
    """The program `name`: Debian's version 14, the environment's own, or the one on PATH."""
    beside = Path(sys.executable).parent / name
    if beside.exists():
        return str(beside)
    return shutil.which(f"{name}-14") or shutil.which(name) or name


def run(name: str, command: list[str], root: Path) -> bool:
    """Runs a check of another program; prints what it says when it fails."""
    try:
        done = subprocess.run(
            command, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except FileNotFoundError:
        print(f"tidy: {name}: {command[0]} is not installed; run scripts/setup", file=sys.stderr)
        return False
    if done.returncode != 0:
        print(done.stdout, end="")
        print(f"tidy: {name}: failed", file=sys.stderr)
    return done.returncode == 0


def python_files(tree: Tree) -> list[str]:
    scripts = [path for path in tree.files(*SCRIPTS) if tree.text(path).startswith("#!")]
    return tree.files(".py") + [
        path for path in scripts if "python" in tree.text(path).split("\n")[0]
    ]


def check_style(tree: Tree) -> bool:
    """Formats, and Python's types."""
    python = python_files(tree)
    results = [
        run("generated docs", [sys.executable, "tools/gen_docs.py", "--check"], tree.root),
        run("ruff", [tool("ruff"), "check", "--quiet", *python], tree.root),
        run("ruff format", [tool("ruff"), "format", "--quiet", "--diff", *python], tree.root),
        run("mypy", [tool("mypy"), "--no-error-summary", *python], tree.root),
    ]
    return all([*results, check_format(tree)])


def check_format(tree: Tree) -> bool:
    """clang-format would change nothing; names the files that it would change."""
    files = tree.files(".c", ".h", ".cc")
    if not files:
        return True
    command = [tool("clang-format"), "--dry-run", "--ferror-limit=0", *files]
    try:
        done = subprocess.run(command, cwd=tree.root, text=True, capture_output=True)
    except FileNotFoundError:
        print("tidy: clang-format is not installed; run scripts/setup", file=sys.stderr)
        return False
    wrong = sorted(set(re.findall(r"^([^\s:]+):\d+:\d+: ", done.stderr, re.MULTILINE)))
    for path in wrong:
        print(f"{path}: not in the project's format; run make format")
    if done.returncode != 0:
        print(done.stderr, end="", file=sys.stderr)
    if wrong or done.returncode != 0:
        print("tidy: clang-format: failed", file=sys.stderr)
    return not wrong and done.returncode == 0


def check_lint(tree: Tree) -> bool:
    """clang-tidy over the library's sources, on every processor."""
    build = tree.root / "build/release"
    if not (build / "compile_commands.json").exists():
        print("tidy: clang-tidy: build/release is not configured; run make lib", file=sys.stderr)
        return False
    sources = tree.files(".c", ".cc", under=("src/",))

    def lint(source: str) -> bool:
        command = [tool("clang-tidy"), "--quiet", "-p", str(build), source]
        return run(f"clang-tidy {source}", command, tree.root)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return all(list(pool.map(lint, sources)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--style", action="store_true", help="formats, types and generated docs too"
    )
    parser.add_argument("--lint", action="store_true", help="clang-tidy too")
    parser.add_argument("--all", action="store_true", help="everything")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[2])
    arguments = parser.parse_args()
    tree = Tree(arguments.root.resolve())

    findings = rules.check(tree)
    for finding in findings:
        print(finding)
    passed = all(finding.warning for finding in findings)
    if arguments.style or arguments.all:
        passed = check_style(tree) and passed
    if arguments.lint or arguments.all:
        passed = check_lint(tree) and passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
