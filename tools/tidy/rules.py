"""The repository's own rules. Each is a function from a tree to what it finds there."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from tidy.tree import Finding, Tree

C_SUFFIXES = (".c", ".h", ".cc")
# Lowest first: a folder includes only what stands to its left, and its own siblings.
LAYERS = ("base", "config", "os", "space", "heap", "thread", "control", "api")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
PUBLIC_HEADERS = ("hakmem.h", "hakmem_inspect.h")
LINES_WARN = 600
LINES_MAX = 800

Rule = Callable[[Tree], Iterator[Finding]]


def _layer(path: str) -> str | None:
    parts = path.removeprefix("src/").split("/")
    return parts[0] if len(parts) > 1 and parts[0] in LAYERS else None


def _includes(tree: Tree, path: str) -> Iterator[tuple[int, str]]:
    for number, line in tree.lines(path):
        if found := INCLUDE.match(line):
            yield number, found[1]


def layers(tree: Tree) -> Iterator[Finding]:
    """Includes go downward or to a sibling, by the full path below src/."""
    for path in tree.files(*C_SUFFIXES, under=("src/",)):
        own = _layer(path)
        if own is None:
            yield Finding(path, 1, "layers", f"is in none of the layers: {', '.join(LAYERS)}")
            continue
        for number, included in _includes(tree, path):
            other = _layer(f"src/{included}")
            if other is None:
                if included.endswith(".def") or included not in PUBLIC_HEADERS:
                    message = f'"{included}" does not start with its layer\'s folder'
                    yield Finding(path, number, "layers", message)
            elif LAYERS.index(other) > LAYERS.index(own):
                yield Finding(
                    path, number, "layers", f'{own}/ includes "{included}", a layer above'
                )


def cycles(tree: Tree) -> Iterator[Finding]:
    """No two modules (a .c with its .h) reach each other through includes."""
    edges: dict[str, dict[str, tuple[str, int]]] = defaultdict(dict)
    for path in tree.files(*C_SUFFIXES, under=("src/",)):
        module = path.removeprefix("src/").rsplit(".", 1)[0]
        for number, included in _includes(tree, path):
            other = included.rsplit(".", 1)[0]
            if included.endswith(".h") and other != module:
                edges[module].setdefault(other, (path, number))

    def reach(start: str, goal: str) -> list[str] | None:
        queue, come_from = [start], {start: ""}
        while queue:
            module = queue.pop(0)
            if module == goal:
                route = [goal]
                while come_from[route[-1]]:
                    route.append(come_from[route[-1]])
                return route[::-1]
            for following in edges.get(module, {}):
                if following not in come_from:
                    come_from[following] = module
                    queue.append(following)
        return None

    reported: set[frozenset[str]] = set()
    for module in sorted(edges):
        for other, (path, number) in sorted(edges[module].items()):
            route = reach(other, module)
            if route is not None and frozenset(route) not in reported:
                reported.add(frozenset(route))
                message = f"includes go in a circle: {module} -> {' -> '.join(route)}"
                yield Finding(path, number, "cycles", message)


def source_includes(tree: Tree) -> Iterator[Finding]:
    """No .c file includes a .c file."""
    for path in tree.files(*C_SUFFIXES):
        for number, included in _includes(tree, path):
            if included.endswith((".c", ".cc")):
                yield Finding(path, number, "source-includes", f'includes the source "{included}"')


def conditionals(tree: Tree) -> Iterator[Finding]:
    """#if only in base/, os/ and api/; headers of src/ are guarded by #pragma once."""
    allowed = ("src/base/", "src/os/", "src/api/")
    for path in tree.files(*C_SUFFIXES, ".def", under=("src/",)):
        if not path.startswith(allowed):
            for number, line in tree.lines(path):
                if re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b", line):
                    message = "conditional compilation outside base/, os/ and api/"
                    yield Finding(path, number, "conditionals", message)
        if path.endswith(".h") and "#pragma once" not in tree.text(path):
            yield Finding(path, 1, "conditionals", "has no #pragma once")


def platform(tree: Tree) -> Iterator[Finding]:
    """Memory, futex and clock calls live in os/ alone."""
    headers = re.compile(r"^\s*#\s*include\s+<(sys/mman\.h|linux/futex\.h|time\.h|sys/time\.h)>")
    for path in tree.files(*C_SUFFIXES, under=("src/",)):
        if not path.startswith("src/os/"):
            for number, line in tree.lines(path):
                if found := headers.match(line):
                    yield Finding(path, number, "platform", f"<{found[1]}> outside src/os/")


def options(tree: Tree) -> Iterator[Finding]:
    """The library reads its options in src/config/ only; documents name none that is not there."""
    for path in tree.files(*C_SUFFIXES, under=("src/",)):
        for number, line in tree.lines(path):
            if re.search(r"\b(secure_)?getenv\s*\(", line):
                message = "getenv: an option is a row of src/config/options.def"
                yield Finding(path, number, "options", message)
    table = "src/config/options.def"
    if table not in tree.files(".def"):
        return
    names = set(re.findall(r"^OPTION\((\w+)", tree.text(table), re.MULTILINE))
    known = {f"HAKMEM_{name.upper()}" for name in names} | {"HAKMEM_CONF", "HAKMEM_PROFILE"}
    for path in tree.files(".md", ".1", ".3", under=("README.md", "CHANGELOG.md", "docs/")):
        for number, line in tree.lines(path):
            for name in re.findall(r"\b(HAKMEM_[A-Z0-9_]+)=", line):
                if name not in known:
                    yield Finding(path, number, "options", f"{name} is no option")


ATOMIC_NOTE = re.compile(r"\b(pairs?|relaxed|acquires?|releases?|as `\w+`)", re.IGNORECASE)
COMMENT = re.compile(r"^\s*(//|/\*|\*)")


def _bare(line: str) -> str:
    """The line without its comment, its alignment and the type that is atomic."""
    code = line.split("//")[0].rstrip()
    return re.sub(r"_Alignas\s*\([^()]*\)", "", re.sub(r"_Atomic\s*\([^()]*\)", "_Atomic", code))


def _declares_atomic(line: str) -> bool:
    """A field or a variable of an atomic type; no parameter, no cast, no local pointer to one."""
    bare = _bare(line)
    if not re.search(r"\b_Atomic\b|\batomic_(bool|int|uint|size_t|uintptr_t|u?int\w*_t)\b", bare):
        return False
    if bare.lstrip().startswith("#"):
        return False
    indented = line[:1].isspace()
    head = bare.split("=")[0]
    if "(" in head or (indented and "=" in bare):
        return False
    return bare.endswith((";", "{")) or "=" in bare


def atomics(tree: Tree) -> Iterator[Finding]:
    """Every atomic field, and every use of a raw builtin, says its order and what it pairs with."""
    implicit = re.compile(
        r"\batomic_(load|store|exchange|compare_exchange_(weak|strong)|fetch_\w+|thread_fence)\s*\("
    )
    builtin = re.compile(r"\b__(atomic|sync)_\w+\s*\(")
    for path in tree.files(*C_SUFFIXES, under=("src/",)):
        lines = tree.text(path).splitlines()
        for index, line in enumerate(lines):
            code = line.split("//")[0]
            if not path.startswith("src/base/") and (
                implicit.search(code) or re.search(r"_explicit\s*\(", code)
            ):
                message = "use the operations of base/atomic.h, which have the order in their name"
                yield Finding(path, index + 1, "atomics", message)
            # base/ is where the builtins get the names that tell their order.
            raw = builtin.search(code) is not None and not path.startswith("src/base/")
            if not raw and not _declares_atomic(line):
                continue
            note = [line] if "//" in line or "/*" in line else []
            above = index - 1
            # Declarations of one group share the note above them.
            while above >= 0 and (_declares_atomic(lines[above]) or builtin.search(lines[above])):
                above -= 1
            while above >= 0 and COMMENT.match(lines[above]):
                note.append(lines[above])
                above -= 1
            if not ATOMIC_NOTE.search(" ".join(note)):
                what = "use of a builtin" if raw else "field"
                message = f"atomic {what} without a note of its order and partner"
                yield Finding(path, index + 1, "atomics", message)


MEMORY_ORDER = "docs/MEMORY_ORDER.md"


def _documented_atomics(tree: Tree) -> dict[tuple[str, str], int]:
    """(source file, name) of each row of the document, and its line."""
    rows: dict[tuple[str, str], int] = {}
    source = ""
    for number, line in tree.lines(MEMORY_ORDER):
        if line.startswith("#"):
            source = line.removeprefix("### ").strip()
        elif source.startswith("src/") and line.startswith("| `"):
            for name in re.findall(r"`(\w+)`", line.split("|")[1].split("(")[0]):
                rows[source, name] = number
    return rows


OPERATION = re.compile(r"\batomic_(?:[a-z]+_)+?(relaxed|acquire|release|acq_rel)\s*\(")


def _operand(code: str, start: int) -> str:
    """The name at the end of an operation's first argument, which begins at `start`."""
    depth = 0
    for end in range(start, len(code)):
        if code[end] in "([":
            depth += 1
        elif code[end] in ")]" and depth > 0:
            depth -= 1
        elif depth == 0 and code[end] in ",)":
            bare = re.sub(r"\[[^\]]*\]", "", code[start:end])
            found = re.findall(r"\w+", bare)
            return found[-1] if found else ""
    return ""


def _orders(text: str) -> set[str]:
    """Acquire and release, as far as a text speaks of them."""
    found = {word for word in ("acquire", "release") if re.search(rf"\b{word}\b", text)}
    return {"acquire", "release"} if "acq_rel" in text else found


def wrong_orders(tree: Tree) -> Iterator[Finding]:
    """What a row of docs/MEMORY_ORDER.md says of acquire and release is what the source does."""
    used: dict[str, set[str]] = defaultdict(set)
    for path in tree.files(*C_SUFFIXES, under=("src/",)):
        code = "\n".join(line.split("//")[0] for line in tree.text(path).splitlines())
        if path != "src/base/atomic.h":
            for operation in OPERATION.finditer(code):
                used[_operand(code, operation.end())] |= _orders(operation[1])
    rows = _documented_atomics(tree) if MEMORY_ORDER in tree.files(".md") else {}
    lines = dict(tree.lines(MEMORY_ORDER)) if rows else {}
    said: dict[str, set[str]] = defaultdict(set)
    elsewhere: set[str] = set()
    for (_, name), number in rows.items():
        order = lines[number].rstrip(" |").split("|")[-1]
        said[name] |= _orders(order)
        if "above" in order or "as `" in lines[number]:
            elsewhere.add(name)
    for (_, name), number in rows.items():
        if name in used and name not in elsewhere and used[name] != said[name]:
            does = " and ".join(sorted(used[name])) or "relaxed operations only"
            yield Finding(MEMORY_ORDER, number, "memory-order", f"{name}: the source has {does}")


def memory_order(tree: Tree) -> Iterator[Finding]:
    """Every atomic has its row in docs/MEMORY_ORDER.md, and every row its atomic."""
    rows = _documented_atomics(tree) if MEMORY_ORDER in tree.files(".md") else {}
    for path in tree.files(*C_SUFFIXES, under=("src/",)):
        for number, line in tree.lines(path):
            if not _declares_atomic(line) or line.startswith(("extern", "HIDDEN extern")):
                continue
            head = _bare(line).split("=")[0].split("_Atomic")[-1]
            for name in re.findall(r"\b([A-Za-z_]\w*)\s*(?:\[[^\]]*\])?\s*(?=[,;{]|$)", head):
                if (path, name) not in rows:
                    message = f"{name} has no row in {MEMORY_ORDER}"
                    yield Finding(path, number, "memory-order", message)
    for (source, name), number in rows.items():
        known = source in tree.files(*C_SUFFIXES, under=("src/",))
        if not known or not re.search(rf"\b{name}\b", tree.text(source)):
            message = f"{source} has no {name} (any more)"
            yield Finding(MEMORY_ORDER, number, "memory-order", message)
    yield from wrong_orders(tree)


# What a declaration may have in parentheses that is no list of parameters.
DECORATION = re.compile(r"_Atomic\(([^()]*)\)|\s__attribute__\(\(.*\)\)")
# An object, or a pointer to a function: no function, and no thread-local one.
OBJECT_ELSEWHERE = re.compile(r"^\s*extern (?!\"|__thread\b)([^(]*[;\[]|[^(]*\(\*\w+\)\()")


def hidden(tree: Tree) -> Iterator[Finding]:
    """For an object of another file code asks no table (HIDDEN in base/base.h)."""
    for path in tree.files(".h", under=("src/",)):
        for number, line in tree.lines(path):
            if OBJECT_ELSEWHERE.match(DECORATION.sub(r"\1", line)):
                yield Finding(path, number, "hidden", "an object of the library without HIDDEN")


def lengths(tree: Tree) -> Iterator[Finding]:
    """A long file is split by idea."""
    for path in tree.files(
        *C_SUFFIXES, ".py", under=("src/", "tools/", "bench/", "tests/", "include/")
    ):
        count = tree.text(path).count("\n")
        if count > LINES_WARN:
            message = f"{count} lines; split by idea above {LINES_WARN}, at the latest {LINES_MAX}"
            yield Finding(path, LINES_WARN, "lengths", message, warning=count <= LINES_MAX)


def wording(tree: Tree) -> Iterator[Finding]:
    """No registry's host, no path of one machine, no unfinished work."""
    forbidden = (
        (
            re.compile(r"\b(pypi|crates|npmjs|debian|golang|maven)\.(org|io|com)\b"),
            "names a registry",
        ),
        (re.compile(r"(?<![\w.$}/-])/(root|work|home/\w+)/"), "names a path of one machine"),
        (re.compile(r"(//|#|\*)\s*(TODO|FIXME|XXX)\b"), "unfinished work"),
    )
    for path in tree.files():
        if path.startswith("tests/tidy/"):
            continue  # holds these words as planted violations
        for number, line in tree.lines(path):
            for pattern, what in forbidden:
                if found := pattern.search(line):
                    yield Finding(path, number, "wording", f"{what}: {found[0].strip()}")


RULES: dict[str, Rule] = {
    "layers": layers,
    "cycles": cycles,
    "source-includes": source_includes,
    "conditionals": conditionals,
    "platform": platform,
    "options": options,
    "atomics": atomics,
    "memory-order": memory_order,
    "hidden": hidden,
    "lengths": lengths,
    "wording": wording,
}


def check(tree: Tree) -> list[Finding]:
    """What all rules find, in the order of the files."""
    return sorted(finding for rule in RULES.values() for finding in rule(tree))
