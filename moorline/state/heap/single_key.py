"""State in a batch job: of one key at a time, in memory, and gone when the key's input has ended.

A batch job's records come sorted by key, so nothing has to be found again later: no snapshot, no restore, and memory
for one key however many there are. ``subtask/batch/subtask.py`` calls :meth:`OneKeyBackend.forget` between two keys.
"""

from __future__ import annotations

from moorline.api.state.descriptors import StateDescriptor
from moorline.api.state.states import State
from moorline.errors import InvalidArgument
from moorline.state.backend import CurrentKey
from moorline.state.heap.backend import HeapBackend


class OneKeyBackend(HeapBackend):
    """The keyed states of one operator in one Spark task of a batch job.

    >>> from moorline.api.state.states import ValueStateDescriptor
    >>> backend = OneKeyBackend("counter", max_parallelism=128)
    >>> count = backend.bind(ValueStateDescriptor("count", int, default=0))
    >>> backend.current.key = "a"
    >>> count.update(count.value() + 1)
    >>> backend.forget(), backend.entries(), count.value()
    (None, 0, 0)
    """

    def bind(self, descriptor: StateDescriptor, scope: CurrentKey | None = None) -> State:
        if descriptor.store is not None:
            advice = (
                "State outside is applied when a checkpoint is complete, and a batch job has none. "
                'Run it with mode="streaming", or leave store= out.'
            )
            raise InvalidArgument(f"store of state {descriptor.name!r}", descriptor.store, advice)
        return super().bind(descriptor, scope)

    def forget(self) -> None:
        """Drop everything: the key's input has ended."""
        for stored in self._states.parts.values():
            if stored.table.entries:
                stored.table.entries.clear()  # in place: the live states hold on to it
        for timers in self._timers.values():
            timers.forget()
