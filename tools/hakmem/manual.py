"""The verbs of the command line, as the parsers know them: for the manual page and for the shell's
completion. Nothing here depends on how a version of argparse lays out its help."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Argument:
    """`flags` is empty for one that is known by its place. `value` is what stands for its value,
    empty for a switch."""

    flags: tuple[str, ...]
    value: str
    help: str
    is_optional: bool
    repeats: bool


@dataclass(frozen=True)
class Verb:
    name: str
    summary: str
    description: str
    arguments: tuple[Argument, ...]
    more: str  # examples, exit status

    @property
    def options(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.flags)

    @property
    def positionals(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if not argument.flags)


def roff(text: str) -> str:
    """Text as roff shows it: backslashes, dashes and leading dots escaped, `code` in bold."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", text)
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def _argument(action: argparse.Action) -> Argument:
    value = action.metavar if isinstance(action.metavar, str) else ""
    if not value and action.choices is not None:
        value = "|".join(str(choice) for choice in action.choices)
    takes_value = action.nargs != 0
    nargs = action.nargs
    return Argument(
        flags=tuple(action.option_strings),
        value=(value or action.dest.upper()) if takes_value else "",
        help=(action.help or "") % vars(action),
        is_optional=nargs in ("?", "*", argparse.REMAINDER),
        repeats=nargs in ("*", "+", argparse.REMAINDER),
    )


def _parsers(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Name, summary and parser of each verb below this one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, found in action.choices.items():
                yield name, helps.get(name, ""), found


def read_verbs(parser: argparse.ArgumentParser) -> tuple[Verb, ...]:
    """Every verb in the order of the command's own help; those of verbs as "bench list"."""
    found = []
    for name, summary, below in _parsers(parser):
        arguments = tuple(
            _argument(action)
            for action in below._actions
            if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction)
            and action.help != argparse.SUPPRESS
        )
        found.append(
            Verb(name, summary, below.description or "", arguments, (below.epilog or "").strip())
        )
        found += [
            Verb(f"{name} {verb.name}", verb.summary, verb.description, verb.arguments, verb.more)
            for verb in read_verbs(below)
        ]
    return tuple(found)


# ---- The manual page


def _synopsis(verb: Verb) -> str:
    words = [f".B hakmem {roff(verb.name)}"]
    if verb.options:
        words.append("[\\fIoption\\fR ...]")
    for argument in verb.positionals:
        word = f"\\fI{roff(argument.value)}\\fR" + (" ..." if argument.repeats else "")
        words.append(f"[{word}]" if argument.is_optional else word)
    return "\n".join(words)


def synopsis(verbs: Sequence[Verb]) -> str:
    return "\n.br\n".join(_synopsis(verb) for verb in verbs) + "\n"


def _option(argument: Argument) -> str:
    flags = ", ".join(f"\\fB{roff(flag)}\\fR" for flag in argument.flags)
    value = f" \\fI{roff(argument.value)}\\fR" if argument.value else ""
    return f".TP\n{flags}{value}\n{roff(argument.help)}\n"


def commands_section(verbs: Sequence[Verb]) -> str:
    """.SH COMMANDS: every verb with its options, examples and exit status."""
    page = [".SH COMMANDS\n"]
    for verb in verbs:
        page.append(f".SS hakmem {roff(verb.name)}\n")
        page.append(f"{roff(verb.description or verb.summary)}\n")
        page += [_option(argument) for argument in verb.options]
        if verb.more:
            page.append(f".PP\n.nf\n{roff(verb.more)}\n.fi\n")
    return "".join(page)


# ---- Completion

COMPLETION = """\
# Completion of the command hakmem for bash; derived by tools/gen_docs.py (make docs).
_hakmem() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}} words=
    if [ "$COMP_CWORD" -eq 1 ]; then
        words='{verbs}'
    else
        case $verb in
{cases}
        esac
        case $word in
            -*) ;;
            *) compopt -o default; words= ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}}
complete -F _hakmem hakmem ./hakmem
"""


def completion(verbs: Sequence[Verb]) -> str:
    """For bash: verbs, and the options of each; files where neither is meant."""
    flags: Mapping[str, list[str]] = {
        verb.name: [flag for option in verb.options for flag in option.flags]
        for verb in verbs
        if " " not in verb.name
    }
    cases = "\n".join(
        f"            {name}) words='{' '.join(['--help', *words])}' ;;"
        for name, words in flags.items()
    )
    return COMPLETION.format(verbs=" ".join(flags), cases=cases)
