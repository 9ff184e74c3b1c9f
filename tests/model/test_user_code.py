"""Functions and classes of a user's script in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: Classes of a script, and a function that uses them. It is written out by one process and called by another.
SCRIPT = """
import sys
from typing import Any, ClassVar, Generic, TypeVar
import msgspec
from moorline.model.wire import user_code

T = TypeVar("T")

class Base(msgspec.Struct, kw_only=True):
    region: int
    labels: list[int] = msgspec.field(default_factory=list, name="tags")

class Order(Base, frozen=True, tag="order", rename="camel", weakref=True):
    order_id: int
    cents: int = 3
    notes: list[str] = []
    LIMIT: ClassVar[int] = 7

    def __post_init__(self):
        if self.cents < 0:
            raise ValueError("cents below 0")

    def same(self):
        return Order

    @property
    def twice(self):
        return 2 * self.cents

class Large(Order, frozen=True, omit_defaults=True):
    cents: int = 9
    parent: "Large | None" = None

class Pair(msgspec.Struct, array_like=True, order=True, frozen=True):
    a: int
    b: int

class Box(msgspec.Struct, Generic[T], dict=True):
    item: T

class Empty(Large, frozen=True):
    pass

def used():
    order = Order(1, region=2)
    found = {
        "order": repr(order),
        "json": msgspec.json.encode(order).decode(),
        "read": msgspec.json.decode(b'{"type":"order","orderId":1,"region":2,"tags":[4]}', type=Order).labels,
        "same": order.same() is Order and type(order) is Order,
        "attributes": [order.twice, Order.LIMIT],
        "large": repr(Large(1, region=2, parent=Large(5, region=6))),
        "fields": [f.name for f in msgspec.structs.fields(Large)],
        "pair": [Pair(1, 2) < Pair(1, 3), msgspec.json.encode(Pair(1, 2)).decode()],
        "hash": hash(Pair(1, 2)) == hash(Pair(1, 2)),
        "box": repr(Box(1)),
        "empty": repr(Empty(3, region=1)),
        "own lists": Order(1, region=2).notes is not Order(1, region=2).notes,
    }
    for name, change in (("frozen", lambda: setattr(order, "cents", 5)), ("negative", lambda: Order(1, -1, region=2))):
        try:
            change()
        except Exception as error:
            found[name] = type(error).__name__
    return found

if __name__ == "__main__":
    with open(sys.argv[1], "wb") as file:
        file.write(user_code.dumps(used))
    print(msgspec.json.encode(used()).decode())
"""
OTHER = """
import sys
import msgspec
from moorline.model.wire import user_code

data = open(sys.argv[1], "rb").read()
used = user_code.loads(data)
again = user_code.loads(data)
assert used.__globals__["Order"] is again.__globals__["Order"], "one class for one class of the script"
# The script's classes get their names in the worker's __main__ too, where texts in annotations are looked up.
Large = used.__globals__["Large"]
print(msgspec.json.encode(used()).decode())
"""


def ran(script: Path, *arguments: Path) -> str:
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_structs_of_a_script_are_the_same_in_another_process(tmp_path: Path) -> None:
    script, other, sent = tmp_path / "script.py", tmp_path / "other.py", tmp_path / "sent"
    script.write_text(SCRIPT)
    other.write_text(OTHER)
    here = ran(script, sent)
    assert '"same":true' in here and '"negative":"ValueError"' in here and '"frozen":"AttributeError"' in here
    assert ran(other, sent) == here
