"""Writes docs/OPTIONS.md and docs/hakmem.1 (from the tables in src/config and the parsers of the
command line), docs/hakmem.bash (from these) and docs/hakmem.3 (from include/hakmem.h); --check only
compares."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from hakmem.cli import make_parser
from hakmem.manual import commands_section, completion, read_verbs, roff, synopsis
from hakmem.options import Counter, Option, OptionTable, read_counters, read_options

ROOT = Path(__file__).resolve().parent.parent
SIZE_SUFFIXES = (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))

SOURCES_TEXT = """\
An option is set, from the weakest source to the strongest, by its default, by the presets of the
mode, by a profile, by HAKMEM_CONF, by its own variable, and by `hakmem_option_set` in the program.
A profile, HAKMEM_CONF and `hakmem_option_set` want its name in small letters without HAKMEM_.
"""

PROFILE_TEXT = """\
A profile that sets any other option, or one of these in a way it may not, counts for nothing.
"""
TUNINGS = {
    "ANY": "to any value",
    "RAISE": "checks, to no less than the default or what the environment's mode presets",
    "LOWER": "limits of the whole process, to no more than the default or the same preset",
}


def show(option: Option, value: int | str) -> str:
    """A value as a user would write it: 256K rather than 262144, when nothing is lost."""
    for choice in option.choices:
        if choice.number == value:
            return choice.name
    if option.type == "BYTES" and isinstance(value, int) and value:
        for suffix, multiple in SIZE_SUFFIXES:
            if value % multiple == 0:
                return f"{value // multiple}{suffix}"
    return str(value)


def values_taken(option: Option) -> str:
    """The values an option takes, in words."""
    if option.type == "BOOL":
        return "0 or 1"
    if option.type == "ENUM":
        return ", ".join(choice.name for choice in option.choices)
    if option.type == "STRING":
        return f"a path of at most {option.max} bytes"
    unit = "" if option.type == "BYTES" or not option.unit else f" {option.unit}"
    return f"{show(option, option.min)} to {show(option, option.max)}{unit}"


def table_row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def options_page(table: OptionTable, counters: tuple[Counter, ...]) -> str:
    """docs/OPTIONS.md."""
    page = [
        "# Options\n",
        "<!-- Derived from src/config by tools/gen_docs.py (`make docs`). -->\n",
        SOURCES_TEXT,
        "| source | example |",
        "|---|---|",
        "| profile: a file ([PROFILES.md](PROFILES.md)) | `HAKMEM_PROFILE=/etc/hakmem.profile` |",
        "| one variable for several | `HAKMEM_CONF=mode:lean,purge_delay_ms:100` |",
        "| one variable each | `HAKMEM_PURGE_DELAY_MS=100` |\n",
        "Sizes take K, M, G (powers of 1024); switches take 0 1, no yes, off on, false true.",
        "An unknown name or an invalid value draws one line on standard error and changes nothing.",
        "A program that runs with more rights than its user (AT_SECURE) ignores the environment.",
        "`HAKMEM_VERBOSE=1` prints every value and where it came from.\n",
        "| option | default | values | changes | meaning |",
        "|---|---|---|---|---|",
    ]
    for option in table.options:
        default = f"`{show(option, option.initial)}`" if option.initial != "" else "empty"
        when = "at any time" if option.live else "at start-up"
        page.append(
            table_row(f"`{option.environment}`", default, values_taken(option), when, option.help)
        )
    for alias, name in table.aliases:
        page.append(
            table_row(
                f"`HAKMEM_{alias.upper()}`", "", "", "", f"Another name of `HAKMEM_{name.upper()}`."
            )
        )
    for option in table.options:
        if option.choices:
            page += [f"\n## {option.environment}\n", "| value | meaning |", "|---|---|"]
            page += [table_row(f"`{choice.name}`", choice.help) for choice in option.choices]
    presets = {(row.option, row.mode): row.value for row in table.presets}
    modes = list(dict.fromkeys(row.mode for row in table.presets))
    page += ["\n## What the modes preset\n"]
    page += [table_row("option", "default", *modes), "|---|---|" + "---|" * len(modes)]
    for option in table.options:
        values = [presets.get((option.name, mode)) for mode in modes]
        if any(value is not None for value in values):
            shown = ["" if value is None else show(option, value) for value in values]
            page.append(table_row(f"`{option.name}`", show(option, option.initial), *shown))
    page += ["\n## What a profile may set\n", PROFILE_TEXT]
    for how, meaning in TUNINGS.items():
        names = [f"`{name}`" for name, tuning in table.tuned if tuning == how]
        page.append(f"- {meaning}: {', '.join(names)}")
    page += ["\n## Counters\n"]
    page += ["What `malloc_stats`, reports and `hakmem run` show. A counter only grows.\n"]
    page += ["| name | kind | unit | meaning |", "|---|---|---|---|"]
    for counter in counters:
        page.append(
            table_row(f"`{counter.name}`", counter.kind.lower(), counter.unit, counter.help)
        )
    return "\n".join(page) + "\n"


MANUAL_HEAD = """\
.\\" Derived from src/config and tools/hakmem by tools/gen_docs.py (make docs); not edited by hand.
.TH HAKMEM 1 "" "hakmem {version}" "User Commands"
.SH NAME
hakmem \\- run programs on the hakmem memory allocator, and look into their heaps
.SH SYNOPSIS
{synopsis}.br
.BI LD_PRELOAD= path /libhakmem.so
.I program
[\\fIargument\\fR ...]
.SH DESCRIPTION
.B hakmem
replaces the C library's malloc, its relatives and the C++ operators new and delete.
The command is run from a source tree, as ./hakmem, or installed by pip (pip install .);
of the verbs
.BR bench ", " soak " and " tune
run from a source tree alone.
.B hakmem run
builds what is missing in a source tree, runs
.I program
on it, and at exit prints on standard error what proves that hakmem served it,
and how memory was used.
Without the tool, preloading
.I libhakmem.so
does the same, silently.
.SH EXIT STATUS
.B hakmem run
passes the program's status through, and 128 + \\fIn\\fR when signal \\fIn\\fR ended it.
125: hakmem itself failed, or the program cannot be preloaded; 126: it cannot be executed;
127: it was not found.
"""

MANUAL_DIAGNOSTICS = """\
.SH DIAGNOSTICS
Misuse draws one line on standard error, and the process ends by SIGABRT
(\\fBHAKMEM_ABORT=0\\fR: the call is ignored):
.PP
.nf
hakmem: KIND: POINTER PLACE[, STATE]; expected EXPECTATION
.fi
.PP
KIND is an invalid free, double free, invalid realloc, realloc of a freed block,
invalid malloc_usable_size, malloc_usable_size of a freed block, size mismatch, write after free,
buffer overflow, buffer underflow, use after free, wild access, or unknown fault.
PLACE is where the pointer lies: the start of a block, so many bytes inside one, or outside the
heap; small blocks come with their size class.
STATE is live, cached, free, quarantined, never handed out, or live or cached by another thread.
SECURITY.md says what is noticed in which mode.
"""

MANUAL_SOURCES = """\
Sizes take K, M, G.
An unknown name or an invalid value draws one line on standard error and changes nothing.
A program that runs with more rights than its user ignores these variables.
"""

MANUAL_TAIL = """\
.PP
The command itself heeds these.
.TP
.B NO_COLOR
Anything but an empty text: no colours.
.TP
.B FORCE_COLOR
Anything but 0 and an empty text: colours where the output is no terminal, too. NO_COLOR wins.
.SH SEE ALSO
.BR malloc (3),
.BR ld.so (8)
"""


def manual_page(table: OptionTable, version: str) -> str:
    """docs/hakmem.1."""
    verbs = read_verbs(make_parser())
    head = MANUAL_HEAD.format(version=version, synopsis=synopsis(verbs))
    page = [head, commands_section(verbs)]
    page += [".SH ENVIRONMENT\n", roff(SOURCES_TEXT), roff(MANUAL_SOURCES)]
    page.append(".TP\n.BI HAKMEM_CONF= name:value,name:value\nSeveral options in one variable.\n")
    page.append(
        ".TP\n.BI HAKMEM_PROFILE= file\n"
        "A profile: a file of lines name=value; # starts a comment.\n"
        "One that is wrong anywhere draws one line on standard error and counts for nothing.\n"
    )
    for option in table.options:
        page.append(f".TP\n.B {roff(option.environment)}\n{roff(option.help)}\n")
        default = show(option, option.initial) or "empty"
        when = "live" if option.live else "start\\-up"
        page.append(f"Values: {roff(values_taken(option))}; default {roff(default)}; {when}.\n")
        for choice in option.choices:
            page.append(f".br\n.B {roff(choice.name)}\n\\(em {roff(choice.help)}\n")
    page.append(MANUAL_TAIL)
    return "".join(page)


def header_entries(header: str) -> list[tuple[str, str]]:
    """The header's comments, each with the declaration below it ("" for the file's own comment)."""
    entries = []
    for found in re.finditer(r"^/\*(.*?)\*/\n(.*?)(?:\n\n|\Z)", header, re.DOTALL | re.MULTILINE):
        comment = " ".join(re.sub(r"^ \*", "", found[1], flags=re.MULTILINE).split())
        declaration = "" if found[2].startswith("#") else found[2].strip()
        entries.append((comment, declaration))
    return entries


def library_page(header: str, version: str) -> str:
    """docs/hakmem.3."""
    entries = header_entries(header)
    page = [
        '.\\" Derived from include/hakmem.h by tools/gen_docs.py (make docs).\n',
        f'.TH HAKMEM 3 "" "hakmem {version}" "Library Functions"\n',
        ".SH NAME\nhakmem \\- extensions of the hakmem memory allocator\n",
        ".SH SYNOPSIS\n.nf\n.B #include <hakmem.h>\n.PP\n",
    ]
    declarations = re.findall(
        r"^(struct \w+ \{\n.*?^\};|\w[\w *]*\([^;{]*\);)$", header, re.DOTALL | re.MULTILINE
    )
    page += [roff(declaration) + "\n.PP\n" for declaration in declarations]
    page.append(
        ".fi\nLink with what \\fIpkg-config \\-\\-libs hakmem\\fR prints: a linker with "
        "\\fI\\-\\-as\\-needed\\fR drops a plain \\fI\\-lhakmem\\fR where the program itself "
        "calls neither malloc nor operator new.\n.SH DESCRIPTION\n"
    )
    for comment, declaration in entries:
        names = re.findall(r"\b(hakmem_\w+)\(", declaration)
        if names:
            page.append(".TP\n.B " + ", ".join(f"{name}()" for name in names) + "\n")
        page.append(roff(comment) + "\n")
    page.append(MANUAL_DIAGNOSTICS)
    page.append(".SH SEE ALSO\n.BR hakmem (1),\n.BR malloc (3)\n")
    return "".join(page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a document is out of date")
    arguments = parser.parse_args()
    table = read_options(ROOT / "src/config/options.def")
    counters = read_counters(ROOT / "src/config/counters.def")
    cmake = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    header = (ROOT / "include/hakmem.h").read_text(encoding="utf-8")
    version = re.search(r"project\(hakmem VERSION ([\d.]+)", cmake)
    if version is None:
        raise SystemExit("gen_docs: CMakeLists.txt names no version")
    documents = {
        "docs/OPTIONS.md": options_page(table, counters),
        "docs/hakmem.1": manual_page(table, version[1]),
        "docs/hakmem.3": library_page(header, version[1]),
        "docs/hakmem.bash": completion(read_verbs(make_parser())),
    }
    stale = []
    for name, text in documents.items():
        path = ROOT / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if arguments.check:
            stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    for name in stale:
        print(f"{name} is out of date: run make docs", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
