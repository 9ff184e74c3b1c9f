"""State that belongs to a subtask and not to a key: lists, broadcast maps, raw bytes.

    class Buffer(mo.MapFunction, mo.CheckpointedFunction):
        def initialize_state(self, ctx):
            self.saved = ctx.operator_state.list_state(mo.ListStateDescriptor("buffer", int))
            self.buffer = list(self.saved.get())

        def snapshot_state(self, ctx):
            self.saved.update(self.buffer)

After a rescale the elements of a list state are dealt out evenly (``list_state``), or every subtask is given all of
them (``union_list_state``). Operator state is kept in memory, whatever the backend, and copied at each barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Any, Protocol

from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor
from moorline.api.state.states import ListState, MapState
from moorline.api.type_parameters import A, B


class OperatorStateStore(Protocol):
    """The store of a function's operator states."""

    def list_state(self, descriptor: ListStateDescriptor[A]) -> ListState[A]:
        """Elements that are dealt out evenly when the parallelism changes, and stay where they are when it does not."""
        ...

    def union_list_state(self, descriptor: ListStateDescriptor[A]) -> ListState[A]:
        """Elements of which every subtask gets all, of all subtasks, at every restore. Keep what is yours."""
        ...

    def broadcast_state(self, descriptor: MapStateDescriptor[A, B]) -> MapState[A, B]:
        """A map of which every subtask has the same copy."""
        ...


class RawKeyedInput(Protocol):
    """Raw keyed state at a restore: for each of the own key groups, the bytes that were written for it."""

    def __iter__(self) -> Iterator[tuple[int, IO[bytes]]]: ...


class RawKeyedOutput(Protocol):
    """Raw keyed state at a snapshot."""

    def start_key_group(self, key_group: int) -> IO[bytes]:
        """Begin the bytes of one of the own key groups, once for each."""
        ...


class RawOutput(Protocol):
    """Raw operator state at a snapshot."""

    def start_partition(self) -> IO[bytes]:
        """Begin the next piece. Pieces are dealt out evenly when the parallelism changes."""
        ...


class InitializationContext(Protocol):
    """The argument of ``initialize_state``."""

    @property
    def is_restored(self) -> bool:
        """Was the job started from a snapshot? It may hold nothing for this operator even so."""
        ...

    @property
    def restored_checkpoint(self) -> int | None: ...
    @property
    def operator_state(self) -> OperatorStateStore: ...
    @property
    def key_groups(self) -> range:
        """The key groups of this subtask."""
        ...

    @property
    def raw_keyed_state(self) -> RawKeyedInput: ...
    @property
    def raw_state(self) -> Iterable[IO[bytes]]:
        """The pieces of raw operator state that are this subtask's now."""
        ...


class SnapshotContext(Protocol):
    """The argument of ``snapshot_state``."""

    @property
    def checkpoint(self) -> int: ...
    @property
    def timestamp(self) -> int:
        """The time of the checkpoint's trigger, in milliseconds since 1970."""
        ...

    @property
    def raw_keyed_state(self) -> RawKeyedOutput: ...
    @property
    def raw_state(self) -> RawOutput: ...


class CheckpointedFunction:
    """A function with operator state. Mix it into any function, source or sink.

    >>> class Sum(CheckpointedFunction):
    ...     total = 0
    ...     def initialize_state(self, ctx):
    ...         self.saved = ctx.operator_state.list_state(ListStateDescriptor("total", int))
    ...         self.total = sum(self.saved.get())
    ...     def snapshot_state(self, ctx):
    ...         self.saved.update([self.total])
    """

    def initialize_state(self, ctx: InitializationContext, /) -> None:
        """Called before ``open``, at the first start too: ask for every state here."""
        raise NotImplementedError

    def snapshot_state(self, ctx: SnapshotContext, /) -> None:
        """Called at every barrier: put into the states what is to come back."""
        raise NotImplementedError


class ListCheckpointed:
    """A function with one list of plain data as operator state, split anew after a rescale.

    >>> class Sum(ListCheckpointed):
    ...     total = 0
    ...     def snapshot_state(self, checkpoint, timestamp):
    ...         return [self.total]
    ...     def restore_state(self, state):
    ...         self.total = sum(state)
    """

    def snapshot_state(self, checkpoint: int, timestamp: int, /) -> list[Any]:
        """The elements to be restored. Return several elements if it can be shared by several subtasks."""
        raise NotImplementedError

    def restore_state(self, state: list[Any], /) -> None:
        """Called before ``open`` after a restore, with what is this subtask's now."""
        raise NotImplementedError


class CheckpointListener:
    """A function that is notified when a checkpoint is complete, or was given up.

    A notification may be missing, and may come for an older checkpoint than the last snapshot. Completing ``n`` means
    that nothing below ``n`` will ever complete: act on everything up to ``n``. One that was given up loses nothing:
    the next one covers its data.

    >>> class Committing(CheckpointListener):
    ...     def notify_checkpoint_complete(self, checkpoint):
    ...         print("safe up to", checkpoint)
    """

    def notify_checkpoint_complete(self, checkpoint: int, /) -> None:
        """The checkpoint is complete. What is raised here fails the attempt, never the checkpoint."""

    def notify_checkpoint_aborted(self, checkpoint: int, /) -> None:
        """The checkpoint will never be complete."""
