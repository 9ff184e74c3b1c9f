"""The parts of a savepoint that are made row by row: elements from tables, and the rows of a state that is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from moorline.api.state.descriptors import MapStateDescriptor, StateDescriptor
from moorline.errors import InvalidArgument
from moorline.model.manifest import RawHandle, StoreHandle
from moorline.model.type_tree.tree import Map, Type
from moorline.snapshots.tables.chains import Chain
from moorline.snapshots.tables.writing.rows import check_unique, sort_rows
from moorline.snapshots.tables.writing.values import check_key_groups, check_stored, stored_column
from moorline.state.evolution.untyped import raw_type
from moorline.state.types.annotations import stored


def encode_elements(
    uid: str, descriptor: StateDescriptor, table: pa.Table, columns: list[str], mode: str
) -> tuple[str, Type, list[bytes]]:
    """Mode, type and encoded elements of an operator state: of one column, or of pairs from two."""
    where = f"state {descriptor.name!r} of operator {uid!r}"
    for name in columns:
        if name not in table.column_names:
            raise InvalidArgument(f"column of {where}", name, f"The table has {', '.join(table.column_names)}.")
    annotation: Any = descriptor.type  # type: ignore[attr-defined]
    if isinstance(descriptor, MapStateDescriptor):
        annotation = tuple[descriptor.key_type, descriptor.type]  # type: ignore[name-defined]
    element_type = stored(annotation, where).tree
    if len(columns) == 1:
        column = table[columns[0]]
    else:
        parts = [table[name].combine_chunks() for name in columns]
        column = pa.StructArray.from_arrays(parts, names=["f0", "f1"])
    kind = raw_type(element_type)
    values = kind.from_array(stored_column(element_type, column, where))
    encoded = [kind.pack(value) for value in values]
    if len(columns) == 2:
        keys = [kind.pack((value[0], None)) for value in values]
        if len(set(keys)) < len(keys):
            raise InvalidArgument(where, f"{len(keys)} entries", "A key of the map is there more than once.")
    return mode, element_type, encoded


def transformed(
    tables: Iterable[pa.Table], function: Callable[[pa.Table], pa.Table], chain: Chain
) -> Iterator[pa.Table]:
    """The rows of a state as a function has changed them, checked and sorted again."""
    whole = chain.type
    for table in tables:
        made = function(table)
        if not isinstance(made, pa.Table) or set(made.column_names) != set(table.column_names):
            shape = made.column_names if isinstance(made, pa.Table) else type(made).__name__
            raise InvalidArgument("function", shape, f"It returns a table with {', '.join(table.column_names)}.")
        made = made.select(table.column_names)
        if not made.num_rows:
            continue
        types = {"map_key": whole.key, "value": whole.value} if isinstance(whole, Map) else {"value": whole}
        for at, field in enumerate(table.schema):
            column = made[field.name]
            if field.name in ("map_key", "value") and not isinstance(chain.newest, (RawHandle, StoreHandle)):
                column = check_stored(types[field.name], column, chain.state)
            elif column.type != field.type:
                raise InvalidArgument(f"column {field.name!r}", column.type, f"It has to stay {field.type}.")
            made = made.set_column(at, field, column)
        if isinstance(chain.newest, RawHandle):
            yield made.sort_by("key_group")
            continue
        try:
            check_key_groups(made, chain.max_parallelism)
        except ValueError as error:
            raise InvalidArgument("function", str(error), "Keys stay as they are; write new ones by keyed().") from None
        made = sort_rows(made)
        check_unique(chain.kind, made, chain.state)
        yield made
