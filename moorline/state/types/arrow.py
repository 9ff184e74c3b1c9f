"""Arrow's own types as annotations: ``pa.decimal128(10, 2)``, ``pa.list_(pa.int16())``, ``pa.struct(...)``.

The column has exactly that type, and a value comes back as ``pa.scalar(value, type).as_py()`` gives it: Arrow's rules
for what fits apply, not ours. The bytes of one value are its plain form, in which moments and durations are numbers,
because their Python form loses nanoseconds or the time zone's name. Each access goes through Arrow: some 10 µs.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from moorline.model.type_tree import tree
from moorline.state.types import plain
from moorline.state.types.arrow_trees import arrow_tree
from moorline.state.types.leaf import StoredType


class ArrowType(StoredType):
    """Values of one Arrow type. Raises ``ValueError`` if state cannot have it."""

    wire = bytes

    def __init__(self, arrow: pa.DataType) -> None:
        self.tree, self.arrow = tree.Arrow(arrow_tree(arrow)), arrow
        self.is_immutable = not pa.types.is_nested(arrow)
        self._numbers = _numbers(arrow)
        self.lower, self.lift = self._lower, self._lift

    def to_array(self, values: list[Any]) -> pa.Array:
        return pa.array(values, self.arrow)

    def from_array(self, array: pa.Array) -> list[Any]:
        return array.to_pylist()  # type: ignore[no-any-return]

    def _lower(self, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            lowered = self.to_array([value]).view(self._numbers)[0].as_py()
        except OverflowError as error:
            raise ValueError(f"{value!r:.50} is out of range: {error}") from error
        return None if lowered is None else plain.encode(lowered)

    def _lift(self, data: bytes | None) -> Any:
        if data is None:
            return None
        return pa.array([plain.decode(data)], self._numbers).view(self.arrow)[0].as_py()


def _numbers(arrow: pa.DataType) -> pa.DataType:
    """The same layout with plain numbers for moments and durations."""
    kind = pa.types
    if kind.is_timestamp(arrow) or kind.is_duration(arrow) or kind.is_time64(arrow):
        return pa.int64()
    if kind.is_list(arrow):
        return pa.list_(_numbers(arrow.value_type))
    if kind.is_large_list(arrow):
        return pa.large_list(_numbers(arrow.value_type))
    if kind.is_fixed_size_list(arrow):
        return pa.list_(_numbers(arrow.value_type), arrow.list_size)
    if kind.is_map(arrow):
        return pa.map_(_numbers(arrow.key_type), _numbers(arrow.item_type))
    if kind.is_struct(arrow):
        return pa.struct([pa.field(f.name, _numbers(f.type), nullable=f.nullable) for f in arrow])
    return arrow
