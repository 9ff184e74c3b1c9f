"""A job with one operator whose counts are in an outside store, and somebody who looks into the store."""

from itertools import count

import msgspec

from moorline.api.state.descriptors import ValueStateDescriptor
from moorline.connectors.memory_state import memory_state
from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange
from moorline.state.external.backend import ExternalBackend
from moorline.testing.contracts.backend.storage import cut, write

_numbers = count(1)
GROUPS = KeyGroupRange(0, 16)
COUNT = ValueStateDescriptor("count", int, default=0)


def new_store(**options):
    return memory_state(f"store {next(_numbers)}", **options)


class Job:
    """One operator with a count, whose attempts own everything."""

    def __init__(self, store, *descriptors):
        self.store, self.descriptors = store, descriptors or (COUNT,)
        self.attempt, self.number, self.complete, self.parts = 0, 0, 0, []

    def start(self, mine=GROUPS, *, restored=True, parts=None, complete=None, descriptors=None, **options):
        self.attempt += 1
        complete = self.complete if complete is None else complete
        parts = self.parts if parts is None else parts
        self.backend = ExternalBackend(
            "op",
            GROUPS.end,
            store=self.store,
            job="job",
            key_groups=mine,
            attempt=options.pop("attempt", self.attempt),
            restored=complete if restored and complete else None,
            **options,
        )
        self.mine = mine
        self.backend.restore([p.restored(mine) for p in cut(parts, mine)] if restored else [])
        self.states = [self.backend.bind(d) for d in descriptors or self.descriptors]
        self.backend.check_all_bound()
        return self

    def add(self, *found):
        self.backend.prefetch(found)
        for key in found:
            self.backend.current.key = key
            self.states[0].update(self.states[0].value() + 1)
        self.backend.flush()

    def clear(self, *found):
        self.backend.prefetch(found)
        for key in found:
            self.backend.current.key = key
            self.states[0].clear()
        self.backend.flush()

    def checkpoint(self, *, confirm=True, complete=True, completed=None):
        self.number += 1
        taken = self.backend.snapshot(self.number, self.complete if completed is None else completed)
        parts = write(taken, self.mine, [], "external")
        taken.done([p.handle for p in parts])
        if complete:
            self.complete, self.parts = self.number, parts
        if confirm and complete:
            self.backend.confirmed(self.number)
        return parts

    def visible(self):
        found = {}
        for (_, _, place), content in self.store.data.documents.items():
            found[keys.decode(place.key)] = msgspec.msgpack.decode(msgspec.msgpack.decode(content))
        return found
