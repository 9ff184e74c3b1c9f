"""JSON objects as columns of a schema: each is decoded into a struct that is made for the schema.

Columns are taken by name. An object without one has a null there; what it has beside the columns is left aside.

    integers, floats, booleans, texts    their JSON values; 1.0 is no integer
    decimals                             numbers, or texts of them
    timestamps, dates                    ISO 8601; a timestamp with a time zone needs one in each text
    binary                               base64, as ``write_files`` writes it
    lists, structs and other types       as Arrow makes them of Python's values

Why not Arrow's own parser: docs/decisions/0082-json-becomes-columns-by-a-struct.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
import pyarrow as pa

from moorline.connectors.columns.fields import UnfitColumns, batch_of_fitting, from_values, is_moment, whole_batch

_UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class JsonColumns:
    """The columns of JSON objects.

    >>> columns = JsonColumns(pa.schema([("user", pa.string()), ("cents", pa.int64())]))
    >>> columns.batch([b'{"user":"ada","cents":5}', b'{"user":1}'], lambda place, why: print(place, why)).to_pylist()
    1 Expected `str | null`, got `int` - at `$.user`
    [{'user': 'ada', 'cents': 5}]
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        fields: list[Any] = []
        for number, field in enumerate(schema):
            type = _python_type(field.type)
            fields.append((f"f{number}", type | None, None) if field.nullable else (f"f{number}", type))
        names = {f"f{number}": name for number, name in enumerate(schema.names)}
        # Fields may be called anything in JSON, and must be names in Python.
        row = msgspec.defstruct("Row", fields, rename=names, gc=False, kw_only=True)
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(row).decode
        self._values = [attrgetter(f"f{number}") for number in range(len(schema))]

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonColumns, (self.schema,)

    def batch(self, texts: Sequence[bytes], unfit: Callable[[int, Exception], None]) -> pa.RecordBatch:
        """A row for each of some texts, but for those that are none; ``unfit`` is told their places, in their order."""
        decode = self._decode
        try:
            return self._columns([decode(text) for text in texts])
        except (*_UNFIT, UnfitColumns):
            return self._one_by_one(texts, unfit)

    def _one_by_one(self, texts: Sequence[bytes], unfit: Callable[[int, Exception], None]) -> pa.RecordBatch:
        rows, places = [], []
        broken: list[tuple[int, Exception]] = []
        for place, text in enumerate(texts):
            try:
                rows.append(self._decode(text))
                places.append(place)
            except _UNFIT as error:
                broken.append((place, error))
        batch = batch_of_fitting(rows, self._columns, lambda place, error: broken.append((places[place], error)))
        for place, cause in sorted(broken, key=itemgetter(0)):
            unfit(place, cause)
        return batch

    def _columns(self, rows: Sequence[Any]) -> pa.RecordBatch:
        columns = [from_values(list(map(value, rows)), field) for value, field in zip(self._values, self.schema)]
        return whole_batch(columns, self.schema)


def _python_type(type: pa.DataType) -> Any:
    if pa.types.is_boolean(type):
        return bool
    if pa.types.is_integer(type):
        return int
    if pa.types.is_float32(type) or pa.types.is_float64(type):
        return float
    if pa.types.is_string(type) or pa.types.is_large_string(type) or is_moment(type):
        return str
    if pa.types.is_binary(type):
        return bytes
    return Decimal if pa.types.is_decimal128(type) else Any
