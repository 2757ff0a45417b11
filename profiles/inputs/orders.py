"""Orders as records of many fields: read from CSV, grouped, changed, and written as JSON."""

import collections
import csv
import datetime
import decimal
import io
import json
import sys

seed = 3


def random(limit: int) -> int:
    """A number below limit."""
    global seed
    seed = (seed * 1103515245 + 12345) % 2147483648
    return (seed >> 8) % limit


lines = [
    f"{number},customer {random(500)},2024-{1 + random(12):02}-{1 + random(28):02},"
    f"{random(90000) / 100},{'x' * random(80)}"
    for number in range(int(sys.argv[1]))
]
Order = collections.namedtuple("Order", "number customer day amount note")
orders = [
    Order(int(row[0]), row[1], datetime.date.fromisoformat(row[2]), decimal.Decimal(row[3]), row[4])
    for row in csv.reader(io.StringIO("\n".join(lines)))
]
total = 0
for turn in range(6):
    months = collections.defaultdict(list)
    for order in orders:
        months[order.customer, order.day.month].append(order)
    sums = {f"{key}": str(sum(each.amount for each in group)) for key, group in months.items()}
    rows = [{**order._asdict(), "day": str(order.day), "amount": str(order.amount)}
            for order in orders[turn::6]]  # fmt: skip
    text = json.dumps({"sums": sums, "rows": rows})
    total += len(json.loads(text)["rows"]) + len(text)
    for place in range(turn, len(orders), 5):
        old = orders[place]
        orders[place] = old._replace(amount=old.amount * 2, note=old.note[random(40) :])
print(total, len(orders))
