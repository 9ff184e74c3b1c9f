"""Copies of records and values: which types can change, and how a value of such a type is copied quickly.

A record that has been emitted is the value it was at that moment. It is pickled or processed later, together with
others, so until then nothing else may hold anything in it that can be changed. Three questions are answered here:

    type in IMMUTABLE    can a value of this type never change, nor anything in it?
    owned(value)         the value if nothing else holds it or anything changeable in it, else a copy
    copy_of(value)       a copy that shares nothing changeable with the value

Whether something else holds an object is read off its reference count. A count that is too high costs a copy and
nothing else; one that is too low cannot be: every reference that lets Python code reach the object is counted.

Types are looked at once (``immutable.py``). Keys of dicts and elements of sets are hashable, and what is hashable
is supposed not to change. Where one object is in a record twice, a copy has two of it.
"""

from __future__ import annotations

import collections
import copy
import copyreg
from collections.abc import Callable
from operator import is_not
from sys import getrefcount
from typing import Any, NamedTuple

import msgspec
import numpy as np

from moorline.errors import RecordNotCopied
from moorline.model.columns import ColumnBatch
from moorline.model.copying.immutable import IMMUTABLE, NotData, are_immutable, is_immutable_type

#: What an instance of a class of the user's must not have of its own if it is to be copied attribute by attribute.
_CUSTOM = ("__deepcopy__", "__copy__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
_CUSTOM_OF_OBJECT = ("__new__", "__reduce__", "__reduce_ex__", "__getstate__")


#: Of a class that was made by a class statement (``Py_TPFLAGS_HEAPTYPE``).
_HEAP_TYPE = 1 << 9


class _Kind(NamedTuple):
    """The way to copy values of one type, and to make a copy the only holder of its contents."""

    copy: Callable[[Any], Any]
    own: Callable[[Any], Any]


_KINDS: dict[type, _Kind] = {}


def owned(value: Any, holders: int = 0) -> Any:
    """``value`` if nothing else holds anything in it that can be changed, else a copy.

    >>> row = {"n": 1}
    >>> kept = [row]
    >>> owned(row) is row, owned(row)
    (False, {'n': 1})

    The caller has it in one variable. ``holders`` is how many references there are beside, and do no harm.
    """
    try:
        cls = type(value)
        if cls in IMMUTABLE:
            return value
        kind = _KINDS.get(cls) or _classified(cls)
        if kind is None:
            return value
        return kind.copy(value) if getrefcount(value) > _ALONE + holders else kind.own(value)
    except RecursionError:
        return _copy_cycle(value)


def owned_of(made: Any, value: Any) -> Any:
    """The same for a value that a for loop over ``made``, the results of a call, has just reached.

    A new list or tuple of results holds them, but nothing else can reach them through it.
    """
    cls = type(value)
    kind = _KINDS.get(cls)
    if kind is None and (cls in IMMUTABLE or (kind := _classified(cls)) is None):
        return value
    others = getrefcount(value) - _ALONE
    if others == 1 and type(made) in (list, tuple) and getrefcount(made) <= _ALONE_IN_LOOP:
        others = 0
    try:
        return kind.copy(value) if others > 0 else kind.own(value)
    except RecursionError:
        return _copy_cycle(value)


def copy_of(value: Any) -> Any:
    """A copy that shares nothing changeable with ``value``.

    >>> inner = [1]
    >>> copied = copy_of(("a", inner))
    >>> inner.append(2)
    >>> copied
    ('a', [1])
    """
    try:
        return _copy_part(value)
    except RecursionError:
        return _copy_cycle(value)


def copies_of(records: list[Any]) -> list[Any]:
    """The records, each a copy if it can be changed; the list itself if none can. Columns do not change."""
    if isinstance(records, ColumnBatch):
        return records.copy()
    if are_immutable(records):
        return records
    return [r if type(r) in IMMUTABLE else copy_of(r) for r in records]


# --- types ---------------------------------------------------------------------------------------


def _classified(cls: type) -> _Kind | None:
    """The way to copy values of a type that was not met before; None if they need not be copied."""
    if is_immutable_type(cls):
        IMMUTABLE.add(cls)
        return None
    if issubclass(cls, NotData):
        kind = _Kind(_same, _same)
    elif issubclass(cls, tuple) and getattr(cls, "_make", None) is not None and cls.__dictoffset__ == 0:
        kind = _Kind(_copy_named_tuple, _own_named_tuple)
    elif issubclass(cls, msgspec.Struct):
        kind = _struct_kind(cls)
    elif not _is_custom(cls) and cls.__dictoffset__ and cls.__basicsize__ == _Plain.__basicsize__:
        kind = _Kind(_copy_instance, _own_instance)
    elif not _is_custom(cls) and not cls.__dictoffset__ and cls.__base__ is object and "__slots__" in vars(cls):
        kind = _Kind(_copy_slotted, _own_slotted)
    else:
        kind = _Kind(_copy_deeply, _copy_deeply)
    _KINDS[cls] = kind
    return kind


def _is_custom(cls: type) -> bool:
    """Has a class something to say about how its instances are made and copied?"""
    return (
        not cls.__flags__ & _HEAP_TYPE
        or any(hasattr(cls, name) for name in _CUSTOM)
        or any(getattr(cls, name, None) is not getattr(object, name, None) for name in _CUSTOM_OF_OBJECT)
    )


class _Plain:
    """A class as plain as can be."""


# --- copying -------------------------------------------------------------------------------------


def _copy_deeply(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as error:  # whatever the methods of a user's object raise
        raise RecordNotCopied(f"{type(value).__module__}.{type(value).__qualname__}", str(error)) from error


def _copy_cycle(value: Any) -> Any:
    """Of something that is part of itself. Its class, if it is the user's, is copied like this from now on."""
    if _KINDS[type(value)].copy in (_copy_instance, _copy_slotted):
        _KINDS[type(value)] = _Kind(_copy_deeply, _copy_deeply)
    return _copy_deeply(value)


def _copy_part(value: Any) -> Any:
    cls = type(value)
    if cls in IMMUTABLE:
        return value
    kind = _KINDS.get(cls) or _classified(cls)
    return value if kind is None else kind.copy(value)


def _owned_part(value: Any) -> Any:
    """Of something that is known to be held by what it is part of, and by a variable of the caller."""
    kind = _KINDS.get(type(value)) or _classified(type(value))
    if kind is None:
        return value
    return kind.copy(value) if getrefcount(value) > _ALONE + 1 else kind.own(value)


def _copy_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    parts = [part if type(part) in IMMUTABLE else _copy_part(part) for part in value]
    return tuple(parts) if any(map(is_not, parts, value)) else value


def _own_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    parts = [part if type(part) in IMMUTABLE else _owned_part(part) for part in value]
    return tuple(parts) if any(map(is_not, parts, value)) else value


def _copy_named_tuple(value: Any) -> Any:
    parts = [part if type(part) in IMMUTABLE else _copy_part(part) for part in value]
    return tuple.__new__(type(value), parts) if any(map(is_not, parts, value)) else value


def _own_named_tuple(value: Any) -> Any:
    parts = [part if type(part) in IMMUTABLE else _owned_part(part) for part in value]
    return tuple.__new__(type(value), parts) if any(map(is_not, parts, value)) else value


def _copy_list(value: Any) -> Any:
    new = value.copy()
    if not set(map(type, value)) <= IMMUTABLE:
        for number, part in enumerate(value):
            if type(part) not in IMMUTABLE:
                new[number] = _copy_part(part)
    return new


def _own_list(value: Any) -> Any:
    if not set(map(type, value)) <= IMMUTABLE:
        for number in range(len(value)):
            part = value[number]
            if type(part) not in IMMUTABLE:
                value[number] = _owned_part(part)
    return value


def _copy_dict(value: Any) -> Any:
    new = value.copy()
    for part in new.values():
        if type(part) not in IMMUTABLE:
            break
    else:
        return new
    for key, part in value.items():
        if type(part) not in IMMUTABLE:
            new[key] = _copy_part(part)
    return new


def _own_dict(value: Any) -> Any:
    part: Any
    for part in value.values():
        if type(part) not in IMMUTABLE:
            break
    else:
        return value
    for key in value:
        part = value[key]
        if type(part) not in IMMUTABLE:
            value[key] = _owned_part(part)
    return value


def _copy_instance(value: Any) -> Any:
    new = object.__new__(type(value))
    vars(new).update(_copy_dict(vars(value)))
    return new


def _own_instance(value: Any) -> Any:
    _own_dict(vars(value))
    return value


def _copy_slotted(value: Any) -> Any:
    new = object.__new__(type(value))
    for name in copyreg._slotnames(type(value)):  # type: ignore[attr-defined]
        if hasattr(value, name):
            object.__setattr__(new, name, _copy_part(getattr(value, name)))
    return new


def _own_slotted(value: Any) -> Any:
    for name in copyreg._slotnames(type(value)):  # type: ignore[attr-defined]
        part = getattr(value, name, None)
        if type(part) not in IMMUTABLE:
            object.__setattr__(value, name, _owned_part(part))
    return value


def _struct_kind(cls: Any) -> _Kind:
    """Of a msgspec struct. One with attributes beside its fields is copied as anything else."""
    if cls.__struct_config__.weakref or cls.__dictoffset__ or any(hasattr(cls, name) for name in _CUSTOM[:1]):
        return _Kind(_copy_deeply, _copy_deeply)
    fields, put = cls.__struct_fields__, msgspec.structs.force_setattr

    def copied(value: Any) -> Any:
        new = copy.copy(value)
        for name in fields:
            part = getattr(value, name)
            if type(part) not in IMMUTABLE:
                put(new, name, _copy_part(part))
        return new

    def own(value: Any) -> Any:
        for name in fields:
            part = getattr(value, name)
            if type(part) not in IMMUTABLE:
                put(value, name, _owned_part(part))
        return value

    return _Kind(copied, own)


def _copy_array(value: Any) -> Any:
    return _copy_deeply(value) if value.dtype.hasobject else value.copy()


def _own_array(value: Any) -> Any:
    # A view is a window onto the memory of another array.
    return value if value.base is None and not value.dtype.hasobject else _copy_array(value)


def _same(value: Any) -> Any:
    return value


_KINDS[tuple] = _Kind(_copy_tuple, _own_tuple)
_KINDS[list] = _KINDS[collections.deque] = _Kind(_copy_list, _own_list)
_KINDS[dict] = _KINDS[collections.OrderedDict] = _KINDS[collections.defaultdict] = _Kind(_copy_dict, _own_dict)
_KINDS[collections.Counter] = _KINDS[dict]
_KINDS[set] = _KINDS[bytearray] = _Kind(lambda value: value.copy(), _same)
_KINDS[np.ndarray] = _Kind(_copy_array, _own_array)


# --- reference counts ----------------------------------------------------------------------------
#
# How many references a value has inside `owned` and `owned_of` if nothing else holds it: measured, by functions of the
# same shape, because releases of Python differ in what counts.


def _count(value: Any, holders: int = 0) -> int:
    return getrefcount(value)


def _count_in_loop(made: Any, value: Any) -> int:
    return getrefcount(made)


def _alone() -> int:
    value: list[Any] = []
    return _count(value)


def _alone_in_loop() -> int:
    made = [[None]]
    for value in made:
        return _count_in_loop(made, value)
    return 0


_ALONE, _ALONE_IN_LOOP = _alone(), _alone_in_loop()
