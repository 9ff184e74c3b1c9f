"""Types with parts: lists, sets, tuples, dicts and anything with named fields, of whatever the parts are.

In a column the parts are columns of their own; as bytes they are msgpack arrays (and maps, where the keys are simple).
``lower`` and ``lift`` are written as they are meant. ``pack`` and ``unpack`` use functions that are generated for the
type and do the same (``state/types/generated.py``), which a test holds them to. Everything here is put together by
``state/types/annotations.py`` from an annotation, and by ``state/evolution/plan.py`` from a stored type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap
from operator import attrgetter
from types import NoneType
from typing import Any

import pyarrow as pa

from moorline.model.type_tree import tree
from moorline.state.types.generated import MOST_PARTS, GeneratedSource, is_of
from moorline.state.types.leaf import LeafType, StoredType, check_kinds, encode


def nullable(stored_type: StoredType) -> Any:
    """The type that msgspec decodes where a part may be None."""
    return stored_type.wire | None


class OptionalType(StoredType):
    """``T | None``: stored as T, which can be None anyway. Only the tree, and what may follow it, differs."""

    def __init__(self, inner: StoredType) -> None:
        self.inner = inner
        self.tree, self.arrow, self.is_immutable = tree.Optional(inner.tree), inner.arrow, inner.is_immutable
        self.wire, self.lower, self.lift = inner.wire, inner.lower, inner.lift
        self.to_array, self.from_array = inner.to_array, inner.from_array  # type: ignore[method-assign]

    @cached_property
    def generated_lower(self) -> Callable[[Any], Any]:
        return self.inner.generated_lower

    @cached_property
    def generated_lift(self) -> Callable[[Any], Any] | None:
        return self.inner.generated_lift

    def as_it_is(self, source: GeneratedSource, part: str) -> str | None:
        asked = self.inner.as_it_is(source, part)
        return None if asked is None else f"({part} is None or {asked})"

    def lowered(self, source: GeneratedSource, part: str) -> str:
        return f"(None if {part} is None else {self.inner.lowered(source, part)})"

    def lifted(self, source: GeneratedSource, part: str) -> str:
        return self.inner.lifted(source, part)


class TypeWithParts(StoredType):
    """A type whose functions are generated. Its values are nearly all of exactly one class."""

    @cached_property
    def generated_lower(self) -> Callable[[Any], Any]:
        source = GeneratedSource()
        lines = self.lower_lines(source, "{}")
        return self.lower if lines is None else source.function(*lines, f"return {source.constant(self.lower)}(v)")

    @cached_property
    def pack(self) -> Callable[[Any], bytes]:
        source = GeneratedSource()
        lines = self.lower_lines(source, source.constant(encode) + "({})")
        if lines is None:
            return super().pack
        return source.function(*lines, f"return {source.constant(encode)}({source.constant(self.lower)}(v))")

    @cached_property
    def generated_lift(self) -> Callable[[Any], Any] | None:
        source = GeneratedSource()
        lines = None if self.lift is None else self.lift_lines(source)
        return self.lift if lines is None else source.function("if v is None: return None", *lines)

    @cached_property
    def unpack(self) -> Callable[[bytes | memoryview], Any]:
        source = GeneratedSource()
        lines = None if self.lift is None else self.lift_lines(source)
        if lines is None:
            return super().unpack
        return source.function(f"v = {source.constant(self.decode)}(v)", "if v is None: return None", *lines)

    def lower_lines(self, source: GeneratedSource, returned: str) -> list[str] | None:
        """Lines that lower ``v`` if it is of exactly the class, and return it in the form of ``returned``.

        None: there is nothing to gain.
        """
        return None

    def lift_lines(self, source: GeneratedSource) -> list[str] | None:
        """Lines that return what ``lift`` makes of ``v``, which is not None. None: there is nothing to gain."""
        return None


class ListType(TypeWithParts):
    """Any number of parts of one type; ``build`` is list, set, frozenset or tuple."""

    def __init__(self, type_tree: tree.Type, item: StoredType, build: Any, is_immutable: bool) -> None:
        self.tree, self.item, self.build = type_tree, item, build
        self.arrow = pa.list_(item.arrow)
        self.is_immutable = is_immutable and item.is_immutable
        self.lower = self._lower
        if item.lift is None:
            self.wire = build[nullable(item), ...] if build is tuple else build[nullable(item)]
        else:
            self.wire, self.lift = list[nullable(item)], self._lift  # type: ignore[misc]

    def to_array(self, values: list[Any]) -> pa.Array:
        check_kinds(values, (self.build,))
        return self._to_array(values)

    def _to_array(self, values: Iterable[Any]) -> pa.Array:
        offsets, flat, absent = [0], [], []
        for value in values:
            if value is not None:
                flat.extend(value)
            offsets.append(len(flat))
            absent.append(value is None)
        nulls = pa.array(absent, pa.bool_()) if any(absent) else None
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), self.item.to_array(flat), mask=nulls)

    def from_array(self, array: pa.Array) -> list[Any]:
        flat, build = self.item.from_array(array.flatten()), self.build
        lengths, at = array.value_lengths().to_pylist(), 0
        values: list[Any] = []
        for length in lengths:
            if length is None:
                values.append(None)
                continue
            values.append(build(flat[at : at + length]))
            at += length
        return values

    def lower_lines(self, source: GeneratedSource, returned: str) -> list[str] | None:
        lowered = returned.format(f"[{self.item.lowered(source, 'x')} for x in v]")
        return [f"if {is_of(source, 'v', self.build)}: return {lowered}"]

    def lift_lines(self, source: GeneratedSource) -> list[str] | None:
        return [f"return {source.constant(self.build)}([{self.item.lifted(source, 'x')} for x in v])"]

    def _lower(self, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, self.build):
            raise TypeError(f"a {type(value).__qualname__} is not a {self.build.__qualname__}")
        lower = self.item.lower
        return [lower(v) for v in value]

    def _lift(self, things: list[Any] | None) -> Any:
        if things is None:
            return None
        lift = self.item.lift
        assert lift is not None
        return self.build([lift(t) for t in things])


class DictType(ListType):
    """Entries of a key and a value, in their order."""

    def __init__(self, key: StoredType, value: StoredType) -> None:
        self.key, self.value = key, value
        entry = tuple_type([Field("key", key), Field("value", value)])
        super().__init__(tree.Dict(key.tree, value.tree), entry, dict, False)
        # A msgpack map only where the key is one thing for msgspec; a list of pairs can hold every key.
        self._is_map = isinstance(key, LeafType) and key.lift is None
        self.lower, self.lift = (self._lower_map, self._lift_map) if self._is_map else (self._lower, self._lift)
        if self._is_map:
            self.wire = dict[nullable(key), nullable(value)]  # type: ignore[misc]
            if value.lift is None:
                self.lift = None
        else:
            self.wire = list[nullable(entry)]  # type: ignore[misc]

    def _to_array(self, values: Iterable[Any]) -> pa.Array:
        return super()._to_array(None if v is None else v.items() for v in values)

    def lower_lines(self, source: GeneratedSource, returned: str) -> list[str] | None:
        key, value = self.key.lowered(source, "k"), self.value.lowered(source, "x")
        items = "for k, x in v.items()"
        lowered = f"{{{key}: {value} {items}}}" if self._is_map else f"[({key}, {value}) {items}]"
        return [f"if {is_of(source, 'v', dict)}: return {returned.format(lowered)}"]

    def lift_lines(self, source: GeneratedSource) -> list[str] | None:
        if self._is_map:
            return [f"return {{k: {self.value.lifted(source, 'x')} for k, x in v.items()}}"]
        return [f"return {source.constant(dict)}([{self.item.lifted(source, 'x')} for x in v])"]

    def _lower(self, value: Any) -> Any:
        key, inner = self.key.lower, self.value.lower
        return None if value is None else [(key(k), inner(v)) for k, v in self._items(value)]

    def _lower_map(self, value: Any) -> Any:
        key, inner = self.key.lower, self.value.lower
        return None if value is None else {key(k): inner(v) for k, v in self._items(value)}

    def _items(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"a {type(value).__qualname__} is not a dict")
        return value.items()

    def _lift(self, things: list[Any] | None) -> Any:
        if things is None:
            return None
        lift = self.item.lift
        return dict(things if lift is None else map(lift, things))

    def _lift_map(self, things: dict[Any, Any] | None) -> Any:
        lift = self.value.lift
        assert lift is not None
        return None if things is None else {k: lift(v) for k, v in things.items()}


@dataclass(frozen=True)
class Field:
    """One part of a struct, with what a reader of older state needs to know about it."""

    name: str
    type: StoredType
    #: What it was called before, newest first.
    renamed_from: tuple[str, ...] = ()
    #: Its default, in words; None if it must be given.
    default: str | None = None
    #: May it be left out, as a ``NotRequired`` key? It is then stored as None.
    may_be_absent: bool = False


class StructType(TypeWithParts):
    """Anything with a fixed number of parts: taken apart by ``take``, put together by ``build``.

    ``attributes``: the names of the parts, if a value of ``kind`` has them as such. ``make``: puts a value together
    from its parts in their order, each an argument, if that is the same as ``build``.
    """

    def __init__(
        self,
        type_tree: tree.Type,
        fields: list[Field],
        kind: type,
        take: Callable[[Any], Any],
        build: Callable[[Any], Any],
        is_immutable: bool,
        build_named: Callable[[dict[str, Any]], Any] | None = None,
        qualname: str = "",
        *,
        attributes: list[str] | None = None,
        make: Callable[..., Any] | None = None,
    ) -> None:
        self.tree, self.fields, self.kind, self.build = type_tree, fields, kind, build
        self._attributes, self._make = attributes, make
        self.qualname = qualname
        #: Put together from some of the fields, by name; the others take their defaults. None for a bare tuple.
        self.build_named = build_named
        self._take = take
        self.arrow = pa.struct([pa.field(f.name, f.type.arrow) for f in fields])
        self.is_immutable = is_immutable and all(f.type.is_immutable for f in fields)
        self.wire = tuple[tuple(nullable(f.type) for f in fields)]  # type: ignore[misc]
        self._lowers = [f.type.lower for f in fields]
        self._lifts = [f.type.lift for f in fields]
        self.lower = self._lower
        if any(self._lifts):
            self.lift = self._lift
        elif build is not tuple:
            self.lift = self._build

    # --- columns --------------------------------------------------------------------------------

    def to_array(self, values: list[Any]) -> pa.Array:
        kinds = check_kinds(values, (self.kind,))
        if not values:
            return pa.array([], self.arrow)
        parts = self._parts(values, kinds)
        columns = [f.type.to_array(part) for f, part in zip(self.fields, parts, strict=True)]
        nulls = pa.array([v is None for v in values], pa.bool_()) if NoneType in kinds else None
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow), mask=nulls)

    def _parts(self, values: list[Any], kinds: set[type]) -> Iterator[list[Any]]:
        """The parts of all values, one place after the other. Each step is one quick loop."""
        width, rows = len(self.fields), values
        if self._attributes is not None and kinds == {self.kind}:
            for name in self._attributes:
                yield list(map(attrgetter(name), values))
            return
        if self._take is not _take_tuple or NoneType in kinds:
            absent = (None,) * width
            rows = [absent if v is None else self._take(v) for v in values]
        if set(map(len, rows)) != {width}:
            raise ValueError(f"a value does not have {width} parts")
        for n in range(width):
            yield [row[n] for row in rows]

    def from_array(self, array: pa.Array) -> list[Any]:
        rows = zip(*(f.type.from_array(c) for f, c in zip(self.fields, array.flatten(), strict=True)), strict=True)
        build = self.build
        if array.null_count:
            return [build(row) if is_there else None for row, is_there in zip(rows, array.is_valid().to_pylist())]
        if build is tuple:
            return list(rows)
        return list(map(build, rows) if self._make is None else starmap(self._make, rows))

    # --- bytes ----------------------------------------------------------------------------------

    def lower_lines(self, source: GeneratedSource, returned: str) -> list[str] | None:
        width, is_tuple = len(self.fields), self._take is _take_tuple
        if width > MOST_PARTS:
            return None
        parts = source.parts(width)
        asked, taken = is_of(source, "v", self.kind), f"{source.constant(self._take)}(v)"
        if is_tuple:
            asked, taken = f"{asked} and {source.constant(len)}(v) == {width}", "v"
        elif self._attributes is not None:
            taken = f"{source.constant(_all_of(self._attributes))}(v)"
        lines = [f"if {asked}:", f"    {', '.join(parts)}, = {taken}"]
        stays = [f.type.as_it_is(source, part) for f, part in zip(self.fields, parts)]
        if is_tuple and None not in stays:
            lines.append(f"    if {' and '.join(filter(None, stays))}: return {returned.format('v')}")
        lowered = ", ".join(f.type.lowered(source, part) for f, part in zip(self.fields, parts))
        return [*lines, f"    return {returned.format(f'[{lowered}]')}"]

    def lift_lines(self, source: GeneratedSource) -> list[str] | None:
        if len(self.fields) > MOST_PARTS:
            return None
        make = None if self._make is None else source.constant(self._make)
        if not any(self._lifts):
            return [f"return {source.constant(self.build)}(v)" if make is None else f"return {make}(*v)"]
        parts = source.parts(len(self.fields))
        lifted = ", ".join(f.type.lifted(source, part) for f, part in zip(self.fields, parts))
        built = f"({lifted},)" if make is None else f"{make}({lifted})"
        if make is None and self.build is not tuple:
            built = f"{source.constant(self.build)}({built})"
        return [f"{', '.join(parts)}, = v", f"return {built}"]

    def _lower(self, value: Any) -> Any:
        if value is None:
            return None
        row, lowers = self._take(value), self._lowers
        if len(row) != len(lowers):
            raise ValueError(f"a value does not have {len(lowers)} parts")
        return [lower(part) for lower, part in zip(lowers, row)]

    def _build(self, row: Any) -> Any:
        return None if row is None else self.build(row)

    def _lift(self, row: Any) -> Any:
        if row is None:
            return None
        return self.build([part if lift is None else lift(part) for lift, part in zip(self._lifts, row)])


def tuple_type(fields: list[Field], type_tree: tree.Type | None = None) -> StructType:
    """A bare tuple, as long as there are fields. ``type_tree``: what it stands for, if that is no tuple."""
    type_tree = tree.Tuple(tuple(f.type.tree for f in fields)) if type_tree is None else type_tree
    return StructType(type_tree, fields, tuple, _take_tuple, tuple, True)


def _all_of(attributes: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives all of some attributes."""
    get: Callable[[Any], Any] = attrgetter(*attributes)
    return get if len(attributes) > 1 else lambda value: (get(value),)


def _take_tuple(value: Any) -> Any:
    if not isinstance(value, tuple):
        raise TypeError(f"a {type(value).__qualname__} is not a tuple")
    return value
