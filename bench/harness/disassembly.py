"""The hit path of a function, read from the built library.

The path is what a processor runs from a function's entry to its first `ret` when no conditional
branch is taken. The allocator's fast paths are written so that a hit is exactly that; callgrind
confirms it by counting (see callgrind.py). Along the path every instruction is classified: memory
it reads or writes, atomics, and, by following values through registers, whether an address is
derived from a given pointer.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from .errors import BenchError

PATH_LIMIT = 200

# Every name of a general register, to the 64-bit one.
_REGISTERS = {
    **{
        name: f"r{letter}x"
        for letter in "abcd"
        for name in (f"r{letter}x", f"e{letter}x", f"{letter}x", f"{letter}l", f"{letter}h")
    },
    **{
        name: f"r{base}"
        for base in ("si", "di", "bp", "sp")
        for name in (f"r{base}", f"e{base}", base, f"{base}l")
    },
    **{f"r{number}{size}": f"r{number}" for number in range(8, 16) for size in ("", "d", "w", "b")},
}
_ARGUMENT_REGISTERS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_MEMORY = re.compile(r"^(?:%[a-z]s:)?(-?0x[0-9a-f]+|-?\d+)?\(([^)]*)\)$|^%[fg]s:(?:0x)?[0-9a-f]+$")
_PREFIXES = frozenset(
    {"lock", "rep", "repz", "repnz", "bnd", "notrack", "data16", "addr32", "cs", "ds"}
)
# These keep a pointer a pointer into the same object: p + k, or p rounded down.
_OFFSETTING = ("add", "sub", "and", "or", "inc", "dec")

Labels = frozenset[str]
NOTHING: Labels = frozenset()


@dataclass(frozen=True)
class Instruction:
    """One line of objdump, taken apart."""

    address: int
    mnemonic: str
    operands: tuple[str, ...]
    prefixes: tuple[str, ...] = ()

    @property
    def memory(self) -> list[str]:
        """Operands that name memory (for lea and nop they only look so)."""
        if self.mnemonic.startswith(("lea", "nop")) or self.is_jump or self.is_call:
            return []
        return [operand for operand in self.operands if _MEMORY.match(operand)]

    @property
    def is_jump(self) -> bool:
        """Jumps, conditional or not."""
        return self.mnemonic.startswith("j")

    @property
    def is_conditional(self) -> bool:
        """Conditional jumps."""
        return self.is_jump and not self.mnemonic.startswith("jmp")

    @property
    def is_call(self) -> bool:
        """call, direct or not."""
        return self.mnemonic.startswith("call")

    @property
    def target(self) -> int | None:
        """Where a direct jump or call goes; None for an indirect one."""
        direct = re.fullmatch(r"[0-9a-f]+", self.operands[0]) if self.operands else None
        return int(direct.group(0), 16) if direct else None

    @property
    def slot(self) -> int | None:
        """Displacement, from the next instruction, of the word an indirect jump goes through."""
        through = re.fullmatch(r"\*(-?0x[0-9a-f]+)\(%rip\)", "".join(self.operands))
        return int(through.group(1), 16) if through and self.is_jump else None

    @property
    def is_return(self) -> bool:
        """ret, in any spelling."""
        return self.mnemonic.startswith("ret")

    @property
    def is_prefetch(self) -> bool:
        """A hint: neither a load nor a store, yet it touches the line."""
        return self.mnemonic.startswith("prefetch")

    @property
    def reads_only(self) -> bool:
        """Whether a memory operand in the last place is read and not written."""
        compares = self.mnemonic.startswith("cmp") and not self.mnemonic.startswith("cmpxchg")
        tests = self.mnemonic.startswith("test") or self.mnemonic in ("bt", "btl", "btq", "btw")
        divides = self.mnemonic.startswith(("mul", "div", "idiv")) or len(self.operands) == 1
        return compares or tests or (divides and not self._writes_single)

    @property
    def _writes_single(self) -> bool:
        return self.mnemonic.startswith(
            ("set", "inc", "dec", "neg", "not", "pop", "sh", "sa", "ro")
        )

    @property
    def loads(self) -> int:
        """Reads of memory. The return address that ret pops is not counted."""
        if self.mnemonic.startswith("pop") or self.slot is not None:
            return 1
        if not self.memory or self.is_prefetch:
            return 0
        written = self.operands[-1] in self.memory and not self.reads_only
        overwrites = self.mnemonic.startswith(("mov", "set", "pop")) and written
        return 0 if overwrites else 1

    @property
    def stores(self) -> int:
        """Writes of memory."""
        if self.mnemonic.startswith(("push", "call")):
            return 1
        if not self.memory or self.is_prefetch:
            return 0
        return int(self.operands[-1] in self.memory and not self.reads_only)

    @property
    def is_atomic(self) -> bool:
        """A locked instruction; xchg with memory locks without being told."""
        return "lock" in self.prefixes or (self.mnemonic.startswith("xchg") and bool(self.memory))

    def __str__(self) -> str:
        return " ".join([*self.prefixes, self.mnemonic, ",".join(self.operands)]).rstrip()


@dataclass(frozen=True)
class HitPath:
    """What the path from entry to `ret` does."""

    function: str
    instructions: tuple[Instruction, ...]
    loads: int
    stores: int
    atomics: tuple[str, ...]
    prefetches: int
    # Instructions that read or write memory at an address derived from the block's.
    block_accesses: tuple[str, ...]

    @property
    def addresses(self) -> tuple[int, ...]:
        """In the order they run."""
        return tuple(each.address for each in self.instructions)


@dataclass
class Disassembly:
    """The code of one library, and where its functions begin."""

    instructions: dict[int, Instruction]
    symbols: dict[str, int]
    # Words of the library's own that the loader fills with the address of one of its functions.
    slots: dict[int, int] = field(default_factory=dict)
    following: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ordered = sorted(self.instructions)
        self.following = dict(pairwise(ordered))

    def walk(self, function: str) -> tuple[Instruction, ...]:
        """The instructions of the hit path; operator new may call malloc, and is followed there."""
        if function not in self.symbols:
            raise BenchError(f"{function} is not among the library's symbols")
        address = self.symbols[function]
        path: list[Instruction] = []
        callers: list[int] = []
        while len(path) < PATH_LIMIT:
            if address not in self.instructions:
                raise BenchError(f"{function}: the hit path leaves the library's code")
            instruction = self.instructions[address]
            following = self.following.get(address, -1)
            path.append(instruction)
            if instruction.is_return and not callers:
                return tuple(path)
            if instruction.is_return:
                address = callers.pop()
            elif instruction.is_call:
                if instruction.target is None or instruction.target != self.symbols.get("malloc"):
                    raise BenchError(f"{function}: the hit path calls: {instruction}")
                callers.append(following)
                address = instruction.target
            elif instruction.is_jump and not instruction.is_conditional:
                target = instruction.target
                if instruction.slot is not None:
                    target = self.slots.get(following + instruction.slot)
                if target is None:
                    raise BenchError(f"{function}: the hit path jumps elsewhere: {instruction}")
                address = target
            else:
                address = following
        raise BenchError(f"{function}: no ret within {PATH_LIMIT} instructions")

    def hit_path(self, function: str, block: str) -> HitPath:
        """The path and its properties.

        `block` says which value is the block's address: "argument" (the first one, as in free) or
        "result" (what is returned, as in malloc).
        """
        path = self.walk(function)
        flow = _Flow()
        for instruction in path:
            flow.step(instruction)
        label = "argument 0" if block == "argument" else None
        wanted = frozenset({label}) if label else flow.registers.get("rax", NOTHING)
        return HitPath(
            function=function,
            instructions=path,
            loads=sum(each.loads for each in path),
            stores=sum(each.stores for each in path),
            atomics=tuple(str(each) for each in path if each.is_atomic),
            prefetches=sum(each.is_prefetch for each in path),
            block_accesses=tuple(str(each) for each, labels in flow.accesses if labels & wanted),
        )


class _Flow:
    """Follows values through registers along one path: which of them are still the same pointer."""

    def __init__(self) -> None:
        self.registers: dict[str, Labels] = {
            name: frozenset({f"argument {index}"}) for index, name in enumerate(_ARGUMENT_REGISTERS)
        }
        self.accesses: list[tuple[Instruction, Labels]] = []

    def value(self, operand: str) -> Labels:
        """What the value of an operand may be derived from; an immediate from nothing."""
        register = _REGISTERS.get(operand.lstrip("%"))
        return self.registers.get(register, NOTHING) if register else NOTHING

    def pointed(self, memory: str) -> Labels:
        """Labels of the registers that make up an address."""
        inside = re.search(r"\(([^)]*)\)", memory)
        parts = inside.group(1).split(",") if inside else []
        return frozenset().union(*(self.value(part.strip()) for part in parts[:2] if part.strip()))

    def step(self, instruction: Instruction) -> None:
        """One instruction: note its accesses, then what its destination now holds."""
        for memory in instruction.memory:
            if not instruction.is_prefetch:
                self.accesses.append((instruction, self.pointed(memory)))
        if not instruction.operands or instruction.is_jump or instruction.is_call:
            return
        destination = _REGISTERS.get(instruction.operands[-1].lstrip("%"))
        if destination is None or self._only_looks(instruction):
            return
        self.registers[destination] = self._result(instruction, destination)

    @staticmethod
    def _only_looks(instruction: Instruction) -> bool:
        mnemonic = instruction.mnemonic
        return mnemonic.startswith(("test", "push", "nop")) or (
            mnemonic.startswith("cmp") and not mnemonic.startswith("cmpxchg")
        )

    def _result(self, instruction: Instruction, destination: str) -> Labels:
        mnemonic, source = instruction.mnemonic, instruction.operands[0]
        if mnemonic.startswith("lea"):
            return self.pointed(source)
        if instruction.memory and source in instruction.memory:
            loaded = frozenset({f"load {instruction.address:x}"})
            keeps = mnemonic.startswith(("cmov", *_OFFSETTING))
            return loaded | self.registers.get(destination, NOTHING) if keeps else loaded
        if mnemonic.startswith("cmov"):
            return self.value(source) | self.registers.get(destination, NOTHING)
        if mnemonic.startswith("mov"):
            return self.value(source)
        if mnemonic.startswith(_OFFSETTING):
            return self.registers.get(destination, NOTHING) | self.value(source)
        # Shifts, xor, multiplication and the like make an index or a mask of a pointer.
        return NOTHING


def _split_operands(text: str) -> tuple[str, ...]:
    """At commas outside of parentheses."""
    parts, depth, current = [], 0, ""
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += letter
    return (*parts, current.strip()) if current.strip() else ()


def parse_objdump(text: str) -> dict[int, Instruction]:
    """Lines of `objdump -d --no-show-raw-insn` (AT&T syntax)."""
    instructions = {}
    for address, code in re.findall(r"^\s*([0-9a-f]+):\t(.*)$", text, re.MULTILINE):
        words = re.sub(r"\s*(?:#.*|<[^>]*>)\s*$", "", re.sub(r"\s+#.*$", "", code)).split(None)
        prefixes = []
        while words and (words[0] in _PREFIXES or words[0].startswith("rex")) and len(words) > 1:
            prefixes.append(words.pop(0))
        if words:
            instructions[int(address, 16)] = Instruction(
                int(address, 16), words[0], _split_operands(" ".join(words[1:])), tuple(prefixes)
            )
    return instructions


def _run(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError as error:
        raise BenchError(f"{command[0]} is missing (Debian package binutils)") from error
    except subprocess.CalledProcessError as error:
        raise BenchError(f"{' '.join(command)}: {error.stderr.strip()}") from error


def symbol_kinds(library: Path) -> Mapping[str, tuple[int, str]]:
    """Exported names: address and kind; kind "i" would be chosen by a resolver at load time."""
    listing = _run(["nm", "--dynamic", "--defined-only", str(library)])
    rows = re.findall(r"^([0-9a-f]+) (\w) ([^\s@]+)", listing, re.MULTILINE)
    return {name: (int(address, 16), kind) for address, kind, name in rows}


def read(library: Path) -> Disassembly:
    """The library's code and exported functions."""
    text = _run(["objdump", "--disassemble", "--no-show-raw-insn", "--wide", str(library)])
    symbols = {name: address for name, (address, _) in symbol_kinds(library).items()}
    listing = _run(["readelf", "--relocs", "--wide", str(library)])
    rows = re.findall(r"^([0-9a-f]+) .* R_\w+_GLOB_DAT +[0-9a-f]+ ([^\s@]+)", listing, re.MULTILINE)
    slots = {int(slot, 16): symbols[name] for slot, name in rows if name in symbols}
    return Disassembly(parse_objdump(text), symbols, slots)
