"""Following what the heap's structures are linked by: to an end, whatever the memory holds."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from hakmem.inspect.errors import DamagedError
from hakmem.inspect.memory import Addresses, MemorySource

MEMBERS_MAX = 1 << 22
POINTER = np.dtype("<u8")


def follow_ring(
    head: int, first: int, next_of: Callable[[int], int | None], what: str
) -> list[int]:
    """The links of a ring of `struct list`, its head excluded. `next_of` reads a member's next
    link, or is None for one that is no member: the ring changed, or is damaged, and ends there."""
    links: list[int] = []
    seen: set[int] = set()
    link = first
    while link not in (head, 0):
        if link in seen or len(links) >= MEMBERS_MAX:
            raise DamagedError(f"the list of {what} runs in a circle at {link:#x}")
        following = next_of(link)
        if following is None:
            break
        seen.add(link)
        links.append(link)
        link = following
    return links


def follow_chain(
    source: MemorySource, first: int, offset: int, known: Collection[int], what: str
) -> list[int]:
    """Structures linked through the pointer at `offset`, from `first` to NULL or to a known one."""
    chain: list[int] = []
    seen: set[int] = set()
    place = first
    while place and place not in known:
        if place in seen or len(chain) >= MEMBERS_MAX:
            raise DamagedError(f"the list of {what} runs in a circle at {place:#x}")
        seen.add(place)
        chain.append(place)
        place = int(source.read_array(place + offset, POINTER)[0])
    return chain


def to_addresses(places: Collection[int]) -> Addresses:
    return np.fromiter(places, np.uint64, len(places))
