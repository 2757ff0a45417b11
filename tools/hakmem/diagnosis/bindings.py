"""Where the malloc calls of a running process lead: what src/control/proof.c tells of its own
process, seen from outside."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import numpy as np

from hakmem.analysis import NOWHERE
from hakmem.diagnosis.modules import Module, Relocations
from hakmem.schema import ProofLine

# The relocation types that leave an address in a slot: call, pointer, data.
SLOT_TYPES = {"x86_64": (7, 6, 1), "aarch64": (1026, 1025, 257)}
ROUTES = ("call", "pointer", "data")
NO_FILE = "[not in any file]"
# A module with one of these has an allocator of its own, which it may call without any slot.
ALLOCATOR_NAMES = ("malloc", "_Znwm")


@dataclass(frozen=True)
class Slot:
    name: str
    route: str
    address: int


class Bindings:
    def __init__(self, modules: list[Module], names: frozenset[str]) -> None:
        self.modules = modules
        self.names = names
        self._definers: dict[str, Module | None] = {}

    def lines(self) -> list[ProofLine]:
        """A line for each module, name and provider."""
        found: dict[ProofLine, None] = {}
        for module in self.modules:
            for slot in self._slots(module):
                provider = self._provider(module, slot)
                if provider is None:
                    continue
                found[ProofLine("now", module.name, slot.name, provider, slot.route)] = None
            for name in ALLOCATOR_NAMES:
                if module.definition(name) is not None:
                    found[ProofLine("now", module.name, name, module.name, "defines")] = None
        return list(found)

    def definer(self, name: str) -> Module | None:
        """The module that the loader finds first for this name."""
        if name not in self._definers:
            self._definers[name] = next(
                (module for module in self.modules if module.definition(name) is not None), None
            )
        return self._definers[name]

    def _slots(self, module: Module) -> list[Slot]:
        return [
            Slot(name, route, module.base + int(row["offset"]))
            for table in (module.calls, module.slots)
            for row, name, route in self._named(module, table)
        ]

    def _named(self, module: Module, table: Relocations) -> list[tuple[np.void, str, str]]:
        types = SLOT_TYPES.get(platform.machine(), ())
        with_symbol = table[np.isin(table["type"], types) & (table["symbol"] != 0)]
        names = module.names(with_symbol["symbol"])
        wanted = [index for index, name in names.items() if name in self.names]
        chosen = with_symbol[np.isin(with_symbol["symbol"], wanted)]
        return [
            (row, names[int(row["symbol"])], ROUTES[types.index(int(row["type"]))])
            for row in chosen
            if module.holds(module.base + int(row["offset"]))
        ]

    def _provider(self, module: Module, slot: Slot) -> str | None:
        """The file that a slot leads to; None for a variable that the program has set anew."""
        address = module.memory.word(slot.address)
        if address == 0:
            return NOWHERE  # a weak reference that nothing defines
        target = self._holder(address)
        if target is None:
            return NO_FILE
        if target.definition(slot.name) == address:
            return target.name
        if slot.route == "call" and target is module:
            # The stub of a call that was never made: the loader will search when it is.
            return self._first_definer(slot.name)
        behind = self._behind_linkage_entry(target, slot.name)
        if behind is None and slot.route == "data" and not target.may_define(slot.name):
            return None
        return behind or target.name

    def _holder(self, address: int) -> Module | None:
        return next((module for module in self.modules if module.holds(address)), None)

    def _first_definer(self, name: str) -> str:
        module = self.definer(name)
        return module.name if module is not None else NOWHERE

    def _behind_linkage_entry(self, module: Module, name: str) -> str | None:
        """A program that is not position independent and takes a function's address uses its own
        linkage entry as that address, in every module. The slot behind that entry has the answer.
        None: the module has no such entry.
        """
        for row, called, _ in self._named(module, module.calls):
            if called != name:
                continue
            address = module.memory.word(module.base + int(row["offset"]))
            if module.holds(address):
                return self._first_definer(name)
            target = self._holder(address)
            return target.name if target is not None else module.name
        return None
