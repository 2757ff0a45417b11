"""Pages of nested elements: written as text, parsed into trees that are kept a while, changed."""

import sys
from xml.etree import ElementTree

seed = 11


def random(limit: int) -> int:
    """A number below limit."""
    global seed
    seed = (seed * 1103515245 + 12345) % 2147483648
    return (seed >> 8) % limit


def page(turn: int) -> str:
    """The text of a new page."""
    parts = [f'<page number="{turn}">']
    for _ in range(20 + random(150)):
        text = f"word{random(900)} " * random(12)
        parts.append(f'<part id="{random(5000)}" kind="k{random(9)}">{text}')
        parts.append("<note/></part>" if random(3) else f"<b>{text}</b></part>")
    return "".join([*parts, "</page>"])


kept: dict[int, ElementTree.Element] = {}
total = 0
for turn in range(int(sys.argv[1])):
    kept[random(150)] = ElementTree.fromstring(page(turn))
    changed = kept[sorted(kept)[random(len(kept))]]
    for part in changed.findall("part")[::3]:
        part.text = (part.text or "") + "more " * random(20)
        part.set("seen", str(turn))
    if turn % 40 == 39:
        texts = {number: ElementTree.tostring(each) for number, each in kept.items()}
        total += sum(map(len, texts.values()))
        for number in list(kept)[:: 2 + random(4)]:
            del kept[number]
print(total, len(kept))
