"""The share of a snapshot that each subtask restores, at the old parallelism or at another.

- Keyed state: a subtask gets every file with rows in its key-group range, and reads just those rows.
- Operator state, even split: unchanged parallelism leaves every element where it was. Otherwise, per state, the
  elements of all old subtasks in order are cut into contiguous slices, as even as can be; the ones with an element
  more go to the subtasks after those that got one more of the state before, so remainders spread.
- Operator state, union: every subtask gets every element.
- Broadcast state: subtask i gets the copy of old subtask i mod old parallelism.
- Raw keyed state: by key groups, like keyed state.
- Another number of key groups: a subtask gets every file whose key groups can have keys of its own, and takes the rows
  whose keys are. Only for state that belongs to keys.
- Records in flight: of a keyed input, to the new owners of their keys, which pick theirs out; of a broadcast input,
  like broadcast state, so that a subtask gets what its copy of the state has not seen; of any other input they stay
  where they were, or are dealt out if the parallelism is another. What went round a loop is no different.

Agrees with Flink 2.3 (``tests/golden``). ``driver/restore.py`` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorline.errors import InFlightNowhere, MaxParallelismChanged, OperatorNotFound
from moorline.model.graph import Graph, Input, Operator, Partitioning, Plan
from moorline.model.ids import SubtaskId
from moorline.model.key_groups import KeyGroupRange, covering, owned
from moorline.model.manifest import (
    ElementsHandle,
    KeyedHandle,
    Manifest,
    NativeHandle,
    OperatorEntry,
    RawHandle,
    StoreHandle,
)
from moorline.model.wire.deployment import ElementsSlice, InFlightShare, OperatorRestore

#: For people: what another number of key groups means.
DEALT_OUT_ANEW = "all keyed state is dealt out anew by key, and the first checkpoint is a full one"
#: State that belongs to key groups and not to keys, in words.
_BY_KEY_GROUP = {RawHandle: "its raw keyed state", StoreHandle: "what it keeps in an outside store"}


def key_groups_of(manifest: Manifest, graph: Graph) -> int:
    """The number of key groups to run with: the snapshot's, unless the user set another one or needs more.

    With another number keyed state is dealt out anew, key by key. Raises where that cannot be done.
    """
    stored = stored_key_groups(manifest)
    if stored is None:
        return graph.max_parallelism
    fits = all(operator.parallelism <= stored for operator in graph.operators)
    wanted = stored if fits and not graph.max_parallelism_is_set else graph.max_parallelism
    if wanted != stored:
        for entry in manifest.operators:
            for handle in (h for s in entry.subtasks for h in s.keyed):
                if isinstance(handle, (RawHandle, StoreHandle)) and entry.uid in graph.by_uid:
                    raise MaxParallelismChanged(entry.uid, stored, wanted, _BY_KEY_GROUP[type(handle)])
    return wanted


def stored_key_groups(manifest: Manifest) -> int | None:
    """The number of key groups in a snapshot; None if it is empty."""
    return next((o.max_parallelism for o in manifest.operators), None)


def redistribute(
    manifest: Manifest, plan: Plan, snapshot: str, allow_non_restored: bool = False
) -> dict[SubtaskId, dict[str, OperatorRestore]]:
    """The restore plan of every subtask.

    Raises if the snapshot holds state that the job has no operator for, unless that is allowed: then it is dropped.
    """
    vertex_of = {uid: v.id for v in plan.vertices for uid in v.operators}
    restores: dict[SubtaskId, dict[str, OperatorRestore]] = {}
    for entry in manifest.operators:
        operator = plan.graph.by_uid.get(entry.uid)
        if operator is None:
            if not allow_non_restored and any(h.keyed or any(e.count for e in h.elements) for h in entry.subtasks):
                raise OperatorNotFound(entry.uid, snapshot)
            if not allow_non_restored:
                check_inputs(entry, (), snapshot)
            continue
        check_inputs(entry, operator.inputs, snapshot)
        for index, part in enumerate(_operator(entry, operator, plan.graph.max_parallelism)):
            restores.setdefault(SubtaskId(vertex_of[entry.uid], index), {})[entry.uid] = part
    return restores


def _operator(entry: OperatorEntry, operator: Operator, max_parallelism: int) -> list[OperatorRestore]:
    elements = _elements(entry, operator.parallelism)
    rekey = operator.options.get("rekey")
    # Under new keys a row may belong to any subtask, so each looks at all of them, once.
    changes_keys = rekey is not None and rekey.name != entry.rekeyed
    stored = entry.max_parallelism
    parts = []
    for index in range(operator.parallelism):
        key_groups = covering(owned(index, operator.parallelism, max_parallelism), max_parallelism, stored)
        if changes_keys:
            key_groups = KeyGroupRange(0, stored)
        keyed = tuple(_cut(k, key_groups) for h in entry.subtasks for k in h.keyed if key_groups & k.key_groups)
        in_flight = tuple(_in_flight(entry, index, operator.parallelism, max_parallelism, changes_keys))
        other = None if stored == max_parallelism else stored
        kinds = () if changes_keys else tuple(entry.keys)
        parts.append(OperatorRestore(keyed, elements[index], changes_keys, other, in_flight, kinds))
    return parts


def check_inputs(entry: OperatorEntry, inputs: tuple[Input, ...], snapshot: str) -> None:
    """Whether records in flight still find the input that they were on their way to."""
    joined = {(i.upstream, i.tag, i.side, _kind(i.partitioning.value), i.feedback) for i in inputs}
    for handle in (h for subtask in entry.subtasks for h in subtask.in_flight):
        if (handle.upstream, handle.tag, handle.side, _kind(handle.partitioning), handle.loop) not in joined:
            raise InFlightNowhere(entry.uid, handle.upstream, snapshot, handle.loop)


def _kind(partitioning: str) -> str:
    # With another parallelism a forward input is rebalanced, so these two are one.
    return "any" if partitioning in (Partitioning.FORWARD.value, Partitioning.REBALANCE.value) else partitioning


def _in_flight(
    entry: OperatorEntry, index: int, parallelism: int, max_parallelism: int, changes_keys: bool
) -> Iterator[InFlightShare]:
    key_groups = owned(index, parallelism, max_parallelism)
    # Then nothing follows from where a record was.
    may_be_anywhere = changes_keys or max_parallelism != entry.max_parallelism
    for old, subtask in enumerate(entry.subtasks):
        for handle in subtask.in_flight:
            was_owned = KeyGroupRange(handle.first, handle.end)
            if handle.partitioning == Partitioning.HASH.value:
                if may_be_anywhere or was_owned & key_groups:
                    yield InFlightShare(handle, key_groups=key_groups)
            elif handle.partitioning == Partitioning.BROADCAST.value:
                if index % entry.parallelism == old:
                    yield InFlightShare(handle)
            elif parallelism == entry.parallelism:
                if index == old:
                    yield InFlightShare(handle)
            elif (first := (index - old) % parallelism) < handle.count:
                yield InFlightShare(handle, first, parallelism)


def _cut(handle: KeyedHandle, key_groups: KeyGroupRange) -> KeyedHandle:
    """The handle for these of its key groups. A native one stays whole: its files cannot be cut."""
    if isinstance(handle, NativeHandle):
        return handle
    common = key_groups & handle.key_groups
    return handle.cut(common.first, common.end)


def _elements(entry: OperatorEntry, parallelism: int) -> list[dict[str, tuple[ElementsSlice, ...]]]:
    handles: dict[str, list[tuple[int, ElementsHandle]]] = {}
    for old, subtask in enumerate(entry.subtasks):
        for handle in subtask.elements:
            handles.setdefault(handle.state, []).append((old, handle))
    parts: list[dict[str, tuple[ElementsSlice, ...]]] = [{} for _ in range(parallelism)]
    start = 0
    for state in sorted(handles):
        parts_of_state: list[list[ElementsSlice]] = [[] for _ in range(parallelism)]
        mode = handles[state][0][1].mode
        if mode == "union":
            for slices in parts_of_state:
                slices += [ElementsSlice(h, 0, h.count) for _, h in handles[state]]
        elif mode == "broadcast":
            copies = dict(handles[state])
            for number, slices in enumerate(parts_of_state):
                if number % entry.parallelism in copies:
                    copy = copies[number % entry.parallelism]
                    slices.append(ElementsSlice(copy, 0, copy.count))
        elif parallelism == entry.parallelism:
            for old, h in handles[state]:
                parts_of_state[old].append(ElementsSlice(h, 0, h.count))
        else:
            start = _split(handles[state], parts_of_state, start)
        for part, slices in zip(parts, parts_of_state, strict=True):
            if slices:
                part[state] = tuple(slices)
    return parts


def _split(handles: list[tuple[int, ElementsHandle]], parts: list[list[ElementsSlice]], start: int) -> int:
    """Deal the elements out; returns the subtask that the next state starts at."""
    parallelism = len(parts)
    share, extra = divmod(sum(h.count for _, h in handles), parallelism)
    rest = iter(handles)
    handle, at = None, 0
    for number in range(parallelism):
        wanted = share + (number < extra)
        receiver = parts[(start + number) % parallelism]
        while wanted:
            if handle is None or at == handle.count:
                (_, handle), at = next(rest), 0
                continue
            taken = min(wanted, handle.count - at)
            receiver.append(ElementsSlice(handle, at, at + taken))
            at, wanted = at + taken, wanted - taken
    return (start + extra) % parallelism
