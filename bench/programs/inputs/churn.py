"""Containers, strings, objects with cycles and serialisation that live for different times."""

import json
import sys


class Node:
    """Two of these point at each other, for the garbage collector to find."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.peer: Node | None = None


def work(rounds: int) -> int:
    """Replaces what it keeps, bit by bit, and sums up what it dropped."""
    seed, checksum = 7, 0
    kept: dict[int, tuple[Node, list[int], dict[str, int]]] = {}
    for turn in range(1, rounds + 1):
        for _ in range(300):
            seed = (seed * 1103515245 + 12345) % 2147483648
            slot = (seed >> 8) % 4000
            if slot in kept:
                node, numbers, _ = kept[slot]
                checksum = (checksum * 31 + len(node.text) + len(numbers)) % 1000000007
            node, peer = Node(chr(97 + seed % 26) * ((seed >> 14) % 300)), Node(str(turn))
            node.peer, peer.peer = peer, node
            numbers = [turn * 1000 + i for i in range(seed % 30)]
            kept[slot] = (node, numbers, {f"key{i}": i for i in range(seed % 5)})
        if turn % 50 == 0:
            texts = {str(slot): kept[slot][0].text for slot in sorted(kept)}
            packed = json.dumps(texts)
            again = json.loads(packed)
            words = b" ".join(text.encode() for text in again.values()).split(b" ")
            checksum = (checksum + len(packed) + len(set(words))) % 1000000007
    return checksum


print(work(int(sys.argv[1])))
