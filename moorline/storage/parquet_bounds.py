"""The memory that the rows of a Parquet file can take, found out without decoding one.

A file of two kilobytes can decode to gigabytes: a dictionary holds a long value once and a run of a million
references to it, levels say of a million rows that they are null, some codecs pack a hundred thousand bytes into one.
And its footer can lie about all of that. So the headers of the pages themselves are read, which is what Parquet obeys
when it decodes, and only what our writer writes is let through:

    codec        LZ4 or none: a byte becomes 255 at most
    pages        data pages of version 1, and a dictionary for ``key_group`` alone, whose values have four bytes
    encodings    PLAIN, so that a value takes as many bytes in memory as in its page; RLE for bools and levels

The bound of a row group is then what its pages unpack to, and for each value, null or not, what its slot takes in
memory. It is worked out when a file is written and goes into the manifest (``Segment.decoded``); a reader works it out
again and refuses a file that would take more. For a manifest that is older than the field there is a generous ratio.

Called by ``storage/segments.py`` after checksums were verified and before Parquet decodes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow.parquet as pq

#: What a row group may take whose manifest does not say: so many bytes, or so many times its size.
UNDECLARED_BYTES, UNDECLARED_RATIO = 64 << 20, 1000

_CREATED_BY = "parquet-cpp"
_CODECS = {"LZ4", "LZ4_RAW", "UNCOMPRESSED"}
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 8}
#: For each value beside its own bytes: an offset, validity, room for a wider type; and for each level of nesting.
_SLOT, _LEVEL = 16, 8

_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8

#: A number of 64 bits in Thrift's compact protocol. Those that we want have 32, and Parquet skips what has not.
_I64 = 6
_DEEPEST = 4


class Unbounded(Exception):
    """A row group is not of a form whose size in memory is known before it is decoded."""


class ColumnForm(NamedTuple):
    """The length of a fixed-length value of a column, and how many levels stand beside each of its values."""

    length: int
    levels: int


def column_forms(metadata: pq.FileMetaData) -> tuple[ColumnForm, ...]:
    """The form of each column of a file.

    PyArrow ties a file's metadata and its schema to each other, so both stay until Python collects cycles, which in a
    process that makes few of them is hardly ever. Call this once for many files where they are of one kind.
    """
    schema = metadata.schema
    columns = [schema.column(i) for i in range(metadata.num_columns)]
    return tuple(ColumnForm(c.length, c.max_definition_level + c.max_repetition_level) for c in columns)


def bound(
    data: Any,
    metadata: pq.FileMetaData,
    forms: Sequence[ColumnForm],
    number: int,
    start: int,
    stop: int,
    dictionary: str,
) -> int:
    """The most bytes that row group ``number`` takes once it is decoded. Raises :class:`Unbounded`.

    ``data`` is the file, of which ``[start,stop)`` has been verified. Only the column ``dictionary`` may have one.
    """
    group = metadata.row_group(number)
    if not metadata.created_by.startswith(_CREATED_BY):
        raise Unbounded(f"it was written by {metadata.created_by!r:.100}")  # others are read past the ends of columns
    if group.num_columns != len(forms):
        raise Unbounded(f"it has {group.num_columns} columns, and its schema {len(forms)}")
    return sum(
        _column_bound(data, group.num_rows, group.column(i), forms[i], start, stop, dictionary)
        for i in range(group.num_columns)
    )


def allowed(declared: int, size: int) -> int:
    """The memory that a row group of ``size`` bytes may take, by what its manifest declares."""
    return declared or max(UNDECLARED_BYTES, UNDECLARED_RATIO * size)


def _column_bound(data: Any, rows: int, chunk: Any, form: ColumnForm, start: int, stop: int, dictionary: str) -> int:
    name = chunk.path_in_schema
    if chunk.compression not in _CODECS:
        raise Unbounded(f"its column {name!r:.100} is compressed with {chunk.compression}")
    first = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        first = min(first, chunk.dictionary_page_offset)
    end = first + chunk.total_compressed_size
    if not start <= first <= end <= stop:
        raise Unbounded(f"its column {name!r:.100} lies outside of its row group")
    width = form.length if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(chunk.physical_type, -1)
    if width < 0:
        raise Unbounded(f"its column {name!r:.100} is of type {chunk.physical_type}")
    slot = width + _SLOT + _LEVEL * form.levels
    total, count, at = 0, 0, first
    while at < end:
        kind, unpacked, packed, values, encoding, at = _page(data, at, end)
        if kind == _DICTIONARY_PAGE:
            fits = name == dictionary and chunk.physical_type == "INT32" and encoding in (_PLAIN, _PLAIN_DICTIONARY)
        elif encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY):
            fits = name == dictionary and chunk.physical_type == "INT32"
        else:
            fits = encoding == _PLAIN or (encoding == _RLE and chunk.physical_type == "BOOLEAN")
        if not fits:
            raise Unbounded(f"its column {name!r:.100} has pages that no version of ours writes")
        total += unpacked + values * slot
        count += values if kind == _DATA_PAGE else 0
        at += packed
    if at != end or count != chunk.num_values or count < rows:
        raise Unbounded(f"the pages of its column {name!r:.100} are not those that its footer tells of")
    return total


def _page(data: Any, at: int, end: int) -> tuple[int, int, int, int, int, int]:
    """Kind, unpacked and packed size, values and encoding of the page at ``at``, and where its bytes begin."""
    header, at = _struct(data, at, end, 0)
    kind = header.get(1)
    details = header.get({_DATA_PAGE: 5, _DICTIONARY_PAGE: 7}.get(kind, 0) if isinstance(kind, int) else 0)
    numbers = [kind, header.get(2), header.get(3)]
    if isinstance(details, dict):
        numbers += [details.get(1), details.get(2)]
    if len(numbers) != 5 or not all(isinstance(n, int) and 0 <= n < 1 << 31 for n in numbers):
        raise Unbounded("a page has a header that no version of ours writes")
    return (*numbers, at)  # type: ignore[return-value]


def _struct(data: Any, at: int, end: int, depth: int) -> tuple[dict[int, Any], int]:
    """The numbers and structs of a Thrift struct by field, and where it ends. What we do not write is refused."""
    fields: dict[int, Any] = {}
    field = 0
    while True:
        if at >= end or depth > _DEEPEST:
            raise Unbounded("a page header does not end")
        head = data[at]
        at += 1
        if head == 0:
            return fields, at
        if not head >> 4:
            raise Unbounded("a page header has fields out of order")
        field += head >> 4
        match head & 15:
            case 1 | 2:  # a bool is whole in its head
                pass
            case 5 | 6:
                number, at = _varint(data, at, end)
                fields[field] = (number >> 1) ^ -(number & 1)
                if head & 15 == _I64 and depth <= 1:
                    raise Unbounded("a page header has a number of the wrong width")
            case 8:
                size, at = _varint(data, at, end)
                at += size
            case 12:
                fields[field], at = _struct(data, at, end, depth + 1)
            case _:
                raise Unbounded("a page header has a field that no version of ours writes")


def _varint(data: Any, at: int, end: int) -> tuple[int, int]:
    result = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, at
        shift += 7
    raise Unbounded("a page header has a number without an end")
