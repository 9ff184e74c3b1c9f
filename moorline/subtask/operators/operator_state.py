"""The states of one operator in one subtask that belong to no key: lists, broadcast maps, raw bytes.

They live in memory and are encoded at the barrier, in the synchronous part: that is the copy. An element travels as
msgpack of its declared type, which ``state/guards.py`` looks at when it is put there. After a restore
``protocol/redistribution.py`` has dealt the elements out.

    mode        elements
    split       of a list state: dealt out evenly
    union       of a union list state: everyone has all of them
    broadcast   pairs of key and value of a broadcast map: a copy for each
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor
from moorline.api.state.operator_state import CheckpointedFunction, CheckpointListener, ListCheckpointed
from moorline.api.state.states import ListState, MapState
from moorline.errors import (
    InvalidArgument,
    ReadOnlyState,
    StateRegisteredLate,
    StateTypeMismatch,
    UnknownState,
)
from moorline.model.connector_states import CONNECTOR_STATES
from moorline.model.key_groups import KeyGroupRange
from moorline.model.type_tree.tree import BYTES, Type
from moorline.state.evolution import plan as evolution
from moorline.state.guards import Guard, elements
from moorline.state.types.annotations import StoredType, stored

#: The name of the state behind ListCheckpointed, and of raw operator state. No name of a user's begins like these.
LIST_CHECKPOINTED, RAW = "#list-checkpointed", "#raw"

#: Elements of one state at a snapshot: state, mode, type, encoded.
Elements = tuple[str, str, Type, list[bytes]]
#: Elements that were restored: type and encoded elements, by the handles they came from.
RestoredElements = dict[str, list[tuple[Type, list[bytes]]]]


class OperatorList(ListState[Any]):
    """A list that belongs to the subtask."""

    def __init__(self, descriptor: ListStateDescriptor, values: list[Any], guard: Guard) -> None:
        super().__init__(descriptor.type, name=descriptor.name)
        self._values, self._check = values, guard.check

    def get(self) -> list[Any]:
        return list(self._values)

    def add(self, value: Any, *, ttl: Any = None) -> None:
        self._check(value)
        self._values.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        self._values.extend(self._checked(values))

    def update(self, values: Iterable[Any]) -> None:
        self._values = self._checked(values)

    def _checked(self, values: Iterable[Any]) -> list[Any]:
        values = elements(values)
        for value in values:
            self._check(value)
        return values

    def clear(self) -> None:
        self._values = []


class BroadcastMap(MapState[Any, Any]):
    """A map of which every subtask has a copy."""

    def __init__(self, descriptor: MapStateDescriptor, entries: dict[Any, Any], keys: Guard, values: Guard) -> None:
        super().__init__(descriptor.key_type, descriptor.type, name=descriptor.name)
        self._entries, self._key, self._check = entries, keys.map_key(), values.check

    def get(self, key: Any, default: Any = None) -> Any:
        return self._entries.get(self._key(key), default)

    def put(self, key: Any, value: Any, *, ttl: Any = None) -> None:
        key = self._key(key)
        self._check(value)
        self._entries[key] = value

    def put_all(self, entries: dict[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        entries = {self._key(key): value for key, value in dict(entries).items()}
        for value in entries.values():
            self._check(value)
        self._entries.update(entries)

    def contains(self, key: Any) -> bool:
        return self._key(key) in self._entries

    def remove(self, key: Any) -> None:
        self._entries.pop(self._key(key), None)

    def keys(self) -> list[Any]:
        return list(self._entries)

    def values(self) -> list[Any]:
        return list(self._entries.values())

    def items(self) -> list[tuple[Any, Any]]:
        return list(self._entries.items())

    def is_empty(self) -> bool:
        return not self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        self._entries.clear()


class ReadOnlyMap(BroadcastMap):
    """The same map for the side that may not change it."""

    def __init__(self, state: BroadcastMap) -> None:
        self.__dict__.update(state.__dict__)

    def put(self, key: Any, value: Any = None, *, ttl: Any = None) -> None:
        raise ReadOnlyState(self._name or "?")

    def put_all(self, entries: Any) -> None:
        raise ReadOnlyState(self._name or "?")

    def remove(self, key: Any) -> None:
        raise ReadOnlyState(self._name or "?")

    def clear(self) -> None:
        raise ReadOnlyState(self._name or "?")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ReadOnlyState(self._name or "?")

    def __delitem__(self, key: Any) -> None:
        raise ReadOnlyState(self._name or "?")


class OperatorState:
    """All of it, for one operator. It is also the ``operator_state`` that user code gets."""

    def __init__(
        self,
        uid: str,
        restored: RestoredElements,
        raw_keyed: dict[int, bytes],
        checkpoint: int | None,
        key_groups: KeyGroupRange,
        is_end: bool = False,
    ) -> None:
        self._uid, self._restored, self._raw_keyed = uid, restored, raw_keyed
        self._checkpoint, self._key_groups = checkpoint, key_groups
        self._lists: dict[str, tuple[OperatorList, str, StoredType]] = {}
        self._maps: dict[str, tuple[BroadcastMap, StoredType]] = {}
        self._function: Any = None
        self._is_closed, self._is_end = False, is_end

    # --- for user code ---------------------------------------------------------------------------

    def list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        return self._list(descriptor, "split")

    def union_list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        return self._list(descriptor, "union")

    def broadcast_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        name = descriptor.name
        if name not in self._maps:
            self._check(name, self._lists)
            pair = tuple[descriptor.key_type, descriptor.type]  # type: ignore[name-defined]
            entries = dict(self._take(name, pair, descriptor.migrate))
            where = f"broadcast state {name!r} of operator {self._uid!r}"
            keys = Guard(self._uid, name, descriptor.key_type, None, "key of the map")
            values = Guard(self._uid, name, descriptor.type, None)
            self._maps[name] = BroadcastMap(descriptor, entries, keys, values), stored(pair, where)
        return self._maps[name][0]

    def _list(self, descriptor: ListStateDescriptor, mode: str) -> ListState[Any]:
        name = descriptor.name
        if name in self._lists:
            state, known, _ = self._lists[name]
            if known != mode:
                raise InvalidArgument(f"state {name!r}", mode, f"It is a {known} list state already.")
            return state
        self._check(name, self._maps)
        kind = stored(descriptor.type, f"state {name!r} of operator {self._uid!r}")
        values = self._take(name, descriptor.type, descriptor.migrate)
        guard = Guard(self._uid, name, descriptor.type, None)
        self._lists[name] = OperatorList(descriptor, values, guard), mode, kind
        return self._lists[name][0]

    def _check(self, name: str, others: dict[str, Any]) -> None:
        if self._is_closed:
            raise StateRegisteredLate(name)
        if (name.startswith("#") and name != LIST_CHECKPOINTED) or (self._is_end and name in CONNECTOR_STATES):
            raise InvalidArgument("state", name, "That name is taken. Give the state another one.")
        if name in others:
            raise InvalidArgument("state", name, "Another state of this operator has that name.")

    def _take(self, name: str, annotation: Any, migrate: Callable[[Any], Any] | None) -> list[Any]:
        """The restored elements of a state, as values of today's type."""
        values: list[Any] = []
        for old_type, encoded in self._restored.pop(name, ()):
            reader = evolution.plan(old_type, annotation, where=evolution.Where(self._uid, name), migrate=migrate)
            values += [reader.unpack(e) for e in encoded]
        return values

    def broadcast_view(self, name: str, may_write: bool) -> MapState[Any, Any]:
        if name not in self._maps:
            raise UnknownState(self._uid, name, tuple(self._maps))
        state = self._maps[name][0]
        return state if may_write else ReadOnlyMap(state)

    # --- life ------------------------------------------------------------------------------------

    def initialize(self, function: Any) -> None:
        """Have a function ask for its states."""
        self._function = function
        if isinstance(function, CheckpointedFunction):
            function.initialize_state(_Initialization(self))
        elif isinstance(function, ListCheckpointed):
            state = self.list_state(ListStateDescriptor(LIST_CHECKPOINTED))
            if self._checkpoint is not None:
                function.restore_state(list(state.get()))

    def close_registration(self) -> list[str]:
        """From now on no state can be asked for. Returns the restored ones that were not asked for."""
        self._is_closed = True
        return [name for name, parts in self._restored.items() if any(encoded for _, encoded in parts)]

    def snapshot(self, checkpoint: int, timestamp: int) -> tuple[list[Elements], dict[int, bytes]]:
        """All elements as they are now, and raw keyed state by key group."""
        raw = _Snapshot(checkpoint, timestamp, self._key_groups)
        if isinstance(self._function, CheckpointedFunction):
            self._function.snapshot_state(raw)
        elif isinstance(self._function, ListCheckpointed):
            self._lists[LIST_CHECKPOINTED][0].update(self._function.snapshot_state(checkpoint, timestamp))
        elements: list[Elements] = []
        for name, (state, mode, kind) in self._lists.items():
            elements.append((name, mode, kind.tree, [self._pack(name, kind, v) for v in state.get()]))
        for name, (entries, pair) in self._maps.items():
            elements.append((name, "broadcast", pair.tree, [self._pack(name, pair, e) for e in entries.items()]))
        pieces = [piece.getvalue() for piece in raw.pieces]
        if pieces:
            elements.append((RAW, "split", BYTES, [stored(bytes, RAW).pack(piece) for piece in pieces]))
        return elements, {group: out.getvalue() for group, out in raw.groups.items()}

    def _pack(self, name: str, kind: StoredType, value: Any) -> bytes:
        try:
            return kind.pack(value)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise StateTypeMismatch(f"{name} of operator {self._uid}", kind.name, str(error)) from error

    def confirmed(self, checkpoint: int) -> None:
        if isinstance(self._function, CheckpointListener):
            self._function.notify_checkpoint_complete(checkpoint)

    def aborted(self, checkpoint: int) -> None:
        if isinstance(self._function, CheckpointListener):
            self._function.notify_checkpoint_aborted(checkpoint)


class _Initialization:
    """The context of ``initialize_state``."""

    def __init__(self, state: OperatorState) -> None:
        self.operator_state = state
        self.restored_checkpoint = state._checkpoint
        self.is_restored = state._checkpoint is not None
        self.key_groups = range(state._key_groups.first, state._key_groups.end)
        self._raw = state._take(RAW, bytes, None)

    @property
    def raw_keyed_state(self) -> Iterator[tuple[int, IO[bytes]]]:
        return ((group, io.BytesIO(data)) for group, data in sorted(self.operator_state._raw_keyed.items()))

    @property
    def raw_state(self) -> list[IO[bytes]]:
        return [io.BytesIO(piece) for piece in self._raw]


class _Snapshot:
    """The context of ``snapshot_state``."""

    def __init__(self, checkpoint: int, timestamp: int, key_groups: KeyGroupRange) -> None:
        self.checkpoint, self.timestamp, self._key_groups = checkpoint, timestamp, key_groups
        self.pieces: list[io.BytesIO] = []
        self.groups: dict[int, io.BytesIO] = {}

    @property
    def raw_keyed_state(self) -> _Snapshot:
        return self

    @property
    def raw_state(self) -> _Snapshot:
        return self

    def start_partition(self) -> IO[bytes]:
        self.pieces.append(io.BytesIO())
        return self.pieces[-1]

    def start_key_group(self, key_group: int) -> IO[bytes]:
        if key_group not in range(self._key_groups.first, self._key_groups.end) or key_group in self.groups:
            first, last = self._key_groups.first, self._key_groups.end - 1
            advice = f"Start each of the own key groups, {first} to {last}, at most once."
            raise InvalidArgument("key group", key_group, advice)
        return self.groups.setdefault(key_group, io.BytesIO())
