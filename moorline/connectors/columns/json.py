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
from moorline.model.columns import values_of

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
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(struct_of(schema)).decode
        self._columns = struct_columns(schema)

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


def struct_of(schema: pa.Schema) -> type[Any]:
    """A struct with the columns of a schema, for msgspec to decode objects into.

    Columns may be called anything in JSON; its fields are ``f0``, ``f1`` and so on.
    """
    fields: list[Any] = []
    for number, field in enumerate(schema):
        type = _python_type(field.type)
        fields.append((f"f{number}", type | None, None) if field.nullable else (f"f{number}", type))
    names = {f"f{number}": name for number, name in enumerate(schema.names)}
    return msgspec.defstruct("Row", fields, rename=names, gc=False, kw_only=True)


def struct_columns(schema: pa.Schema) -> Callable[[Sequence[Any]], pa.RecordBatch]:
    """A function from such structs to their columns, which raises :class:`UnfitColumns`."""
    values = [attrgetter(f"f{number}") for number in range(len(schema))]

    def columns(rows: Sequence[Any]) -> pa.RecordBatch:
        arrays = [from_values(list(map(value, rows)), field) for value, field in zip(values, schema)]
        return whole_batch(arrays, schema)

    return columns


class JsonRows:
    """Rows of columns as objects that msgspec writes as JSON: cheaper than dicts, which the garbage collector looks at.

    >>> rows = JsonRows()
    >>> batch = pa.RecordBatch.from_pydict({"user": ["ada"], "cents": [5]})
    >>> msgspec.json.encode(rows.of(batch))
    b'[{"user":"ada","cents":5}]'
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._row: Any = None

    def of(self, batch: pa.RecordBatch) -> list[Any]:
        """The rows of a batch."""
        names = batch.schema.names
        if self._row is None or names != self._names:
            fields = {f"f{number}": name for number, name in enumerate(names)}
            self._row, self._names = msgspec.defstruct("Row", list(fields), rename=fields, gc=False), names
        return list(map(self._row, *map(values_of, batch.columns)))


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
