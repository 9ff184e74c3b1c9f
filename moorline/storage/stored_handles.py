"""Handles of keyed state as manifests store them, and the one place where they are checked.

In a file every handle has the same fields, whatever it is (``docs/reference/storage-format.md``), and its ``kind`` says
which of them count. In memory each shape is a class of its own (``model/manifest.py``). A manifest comes from storage,
so its handles are believed only after :func:`from_stored`:

    kind        one that this version knows
    fields      those of its shape are there, and no others
    key groups  within those of the operator
    names       every file stays in its folder: paths pass ``layout.check_path``, and the names of native files, which
                become paths when they are fetched, are those that their backend gives and occur once
    types       trees of bounded size, and that of a map state is one of a map

No reader of a snapshot checks any of this again. Every version of the format has these fields; what earlier ones
lack has a default, and their types, which were texts, are trees when they come out of here. Pure;
``storage/entries.py`` calls it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import msgspec

from moorline.errors import SnapshotCorrupt
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import (
    FILE_KINDS,
    FORMAT,
    ROW_KINDS,
    Claim,
    ElementsHandle,
    KeyedHandle,
    Manifest,
    NativeFile,
    NativeHandle,
    OperatorEntry,
    OperatorHandles,
    SnapshotFile,
    StoredState,
    file_handle,
)
from moorline.model.type_tree.stored import Stored, state_type, value_type
from moorline.model.type_tree.tree import StateType, Type
from moorline.storage.layout import check_path

#: By backend: what its files are called. A database reads whatever lies in its folder, so nothing else gets there.
_NATIVE_NAMES = {"rocksdb": re.compile(r"\d+\.sst|MANIFEST-\d+|CURRENT", re.ASCII)}
_NATIVE = "native"
#: Since this format types are trees, and no texts.
_TREES_SINCE = 4

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class StoredHandle(msgspec.Struct, frozen=True):
    """Any handle of keyed state, as it stands in a file."""

    #: Empty if it is native.
    state: str
    #: One of ROW_KINDS, or raw, store or native.
    kind: str
    #: None if it is native.
    type: Stored | None
    first: int
    end: int
    rows: int
    file: SnapshotFile | None = None
    increment: bool = False
    #: Of a native one.
    backend: str = ""
    files: list[NativeFile] = []
    states: list[tuple[str, str, Stored]] = []


class _StoredElements(ElementsHandle, frozen=True):
    #: The first format has none.
    type: Type | str = "plain"  # type: ignore[assignment]


class _StoredHandles(OperatorHandles, frozen=True):
    keyed: list[StoredHandle] = []  # type: ignore[assignment]
    elements: list[_StoredElements] = []  # type: ignore[assignment]


class _StoredOperator(OperatorEntry, frozen=True):
    subtasks: list[_StoredHandles]  # type: ignore[assignment]


class StoredManifest(Manifest, frozen=True, tag="checkpoint", tag_field="kind"):
    """A manifest with its handles as they stand in a file."""

    operators: list[_StoredOperator]  # type: ignore[assignment]


StoredEntry = StoredManifest | Claim


def to_stored(manifest: Manifest) -> StoredManifest:
    """The manifest as it is written."""
    operators = []
    for operator in manifest.operators:
        subtasks = [
            _with(
                *(_StoredHandles, s),
                keyed=[_flat(h) for h in s.keyed],
                elements=[_with(_StoredElements, e) for e in s.elements],
            )
            for s in operator.subtasks
        ]
        operators.append(_with(_StoredOperator, operator, subtasks=subtasks))
    # It may be one that was read: what is written now has the types of now.
    return _with(StoredManifest, manifest, operators=operators, format=max(manifest.format, FORMAT))


def from_stored(stored: StoredManifest) -> Manifest:
    """The manifest as it is used. Raises SnapshotCorrupt, with no path in it, unless everything in it may be believed.

    The path is that of a file with a wrong name, if that is what is wrong.
    """
    operators = []
    for operator in stored.operators:
        owner, parts = _Owner(operator.uid, operator.max_parallelism, stored.format), len(operator.subtasks)
        # A restore shares its state out by these numbers.
        if parts != operator.parallelism:
            raise SnapshotCorrupt("", f"{owner} has parallelism {operator.parallelism} and {parts} subtasks")
        subtasks = []
        for subtask in operator.subtasks:
            keyed = [_shaped(h, owner) for h in subtask.keyed]
            elements = [_with(ElementsHandle, e, type=_element_type(e, owner)) for e in subtask.elements]
            subtasks.append(_with(OperatorHandles, subtask, keyed=keyed, elements=elements))
        operators.append(_with(OperatorEntry, operator, subtasks=subtasks))
    manifest = _with(Manifest, stored, operators=operators)
    for file in manifest.files():
        check_path(file.path)
    return manifest


def _with(kind: type[_Struct], of: msgspec.Struct, **changed: object) -> _Struct:
    """A ``kind`` with the fields of another struct, some of them changed."""
    return kind(**{name: changed.get(name, getattr(of, name)) for name in kind.__struct_fields__})


def _flat(handle: KeyedHandle) -> StoredHandle:
    if isinstance(handle, NativeHandle):
        first, end, backend = handle.first, handle.end, handle.backend
        states: list[tuple[str, str, Stored]] = [(s.name, s.kind, s.type) for s in handle.states]
        return StoredHandle("", _NATIVE, None, first, end, 0, backend=backend, files=handle.files, states=states)
    first, end, rows, increment = handle.first, handle.end, handle.rows, handle.increment
    return StoredHandle(handle.state, handle.kind, handle.type, first, end, rows, handle.file, increment)


class _Owner(NamedTuple):
    """The operator that handles are of, in a manifest of some format."""

    uid: str
    max_parallelism: int
    format: int

    def __str__(self) -> str:
        return f"operator {self.uid!r:.100}"


def _shaped(stored: StoredHandle, owner: _Owner) -> KeyedHandle:
    first, end, rows = stored.first, stored.end, stored.rows
    if not 0 <= first <= end <= owner.max_parallelism or rows < 0:
        groups = f"key groups [{first},{end}) of {owner.max_parallelism}"
        raise SnapshotCorrupt("", f"a state of {owner} has {rows} rows of {groups}")
    if stored.kind == _NATIVE:
        if stored.file is not None or stored.increment:
            raise SnapshotCorrupt("", f"{owner} has files of a backend that are said to be rows as well")
        _check_names(stored, owner)
        states = [StoredState(name, kind, _type(name, kind, given, owner)) for name, kind, given in stored.states]
        return NativeHandle(first, end, stored.backend, stored.files, states)
    what = f"state {stored.state!r:.100} of {owner}"
    if stored.file is None:
        raise SnapshotCorrupt("", f"{what} has no file")
    if stored.files or stored.states:
        raise SnapshotCorrupt("", f"{what} is said to be in rows and in files of a backend")
    if stored.kind not in FILE_KINDS:
        raise SnapshotCorrupt("", f"{what} is of kind {stored.kind!r:.100}, which this version does not know")
    if stored.increment and stored.kind not in ROW_KINDS:
        raise SnapshotCorrupt("", f"{what} is {stored.kind}, and there are no increments of that")
    whole = _type(stored.state, stored.kind, stored.type, owner)
    key_groups = KeyGroupRange(first, end)
    return file_handle(stored.state, stored.kind, whole, key_groups, rows, stored.file, stored.increment)


def _type(state: str, kind: str, stored: Stored | None, owner: _Owner) -> StateType:
    with _refusing_type(state, stored, owner) as given:
        return state_type(kind, given)


def _element_type(elements: _StoredElements, owner: _Owner) -> Type:
    with _refusing_type(elements.state, elements.type, owner) as given:
        return value_type(given)


@contextmanager
def _refusing_type(state: str, stored: Stored | None, owner: _Owner) -> Iterator[Stored]:
    """Raises SnapshotCorrupt where what is stored is no type."""
    try:
        if stored is None:
            raise ValueError("there is none")
        if isinstance(stored, str) != (owner.format < _TREES_SINCE):
            raise ValueError(f"it is a {'text' if isinstance(stored, str) else 'tree'} in format {owner.format}")
        yield stored
    except ValueError as error:
        raise SnapshotCorrupt("", f"state {state!r:.100} of {owner} has no type: {error}") from None


def _check_names(stored: StoredHandle, owner: _Owner) -> None:
    names, known = [file.name for file in stored.files], _NATIVE_NAMES.get(stored.backend)
    if known is None:
        raise SnapshotCorrupt("", f"{owner} has files of a backend {stored.backend!r:.100}, which there is not")
    for name in names:
        if not known.fullmatch(name):
            raise SnapshotCorrupt("", f"{name!r:.100} of {owner} is no name for a file of a database")
    if len(set(names)) < len(names):
        raise SnapshotCorrupt("", f"{owner} has two files of a database by one name")
