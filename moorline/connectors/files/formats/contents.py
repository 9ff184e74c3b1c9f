"""The contents of a sink's files: their format, schema and compression, checked where the job is built.

format     compressions (the first is the default)        schema
parquet    zstd, snappy, gzip, lz4, brotli, none          a pyarrow.Schema
orc        zstd, snappy, gzip, lz4, none                  a pyarrow.Schema
avro       deflate, snappy, zstd, bzip2, xz, none         a pyarrow.Schema, or an Avro schema as a dict
csv        none, gzip, bzip2, xz, zstd                    a pyarrow.Schema
jsonl      none, gzip, bzip2, xz, zstd                    none
text       none, gzip, bzip2, xz, zstd                    none
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, Literal, get_args

import pyarrow as pa

from moorline.connectors.files.formats import compressed
from moorline.connectors.files.formats import table_files as tables
from moorline.connectors.files.formats.avro import fastavro, has_codec
from moorline.connectors.files.formats.avro_schema import NoAvroType
from moorline.connectors.files.formats.row_files import JsonLinesFile, RowFile, TextFile
from moorline.errors import InvalidArgument

SinkFormat = Literal["parquet", "jsonl", "csv", "text", "avro", "orc"]
Compression = Literal["zstd", "snappy", "gzip", "deflate", "lz4", "brotli", "bzip2", "xz", "none"]

_OF_LINES = {"none": "", "gzip": ".gz", "bzip2": ".bz2", "xz": ".xz", "zstd": ".zst"}
#: By format: our names of compressions, and what its library calls them. Of lines, the end of a file's name.
_COMPRESSIONS: dict[str, dict[str, str]] = {
    "parquet": {name: name for name in ("zstd", "snappy", "gzip", "lz4", "brotli", "none")},
    "orc": {"zstd": "zstd", "snappy": "snappy", "gzip": "zlib", "lz4": "lz4", "none": "uncompressed"},
    "avro": {
        "deflate": "deflate",
        "snappy": "snappy",
        "zstd": "zstandard",
        "bzip2": "bzip2",
        "xz": "xz",
        "none": "null",
    },
    "csv": _OF_LINES,
    "jsonl": _OF_LINES,
    "text": _OF_LINES,
}


@dataclass(frozen=True)
class FileContents:
    """The form of every file that a sink writes."""

    format: SinkFormat
    schema: pa.Schema | None
    #: Given instead of a schema of Arrow's.
    avro: Mapping[str, Any] | None
    compression: str

    @property
    def extension(self) -> str:
        """The end of a file's name."""
        packed = _OF_LINES[self.compression] if _COMPRESSIONS[self.format] is _OF_LINES else ""
        return f".{self.format}{packed}"

    def open(self, file: IO[bytes], path: str) -> RowFile:
        """Begin a file. ``path`` is for messages."""
        if _COMPRESSIONS[self.format] is _OF_LINES:
            if self.compression == "none":
                return self._on_lines(file, path)
            return _Packed(self, file, path)
        if self.avro is not None:
            return tables.AvroFile(file, path, dict(self.avro), self._called)
        return tables.TableFile(file, path, self.schema, self.open_writer)

    def open_writer(self, file: IO[bytes], schema: pa.Schema) -> tables.TableFileWriter:
        """The writer of a file with columns. Raises what its library raises for types that it does not have."""
        match self.format:
            case "parquet":
                return tables.ParquetTables(file, schema, self._called)
            case "orc":
                return tables.OrcTables(file, self._called)
            case "avro":
                return tables.AvroTables(file, schema, self._called)
        return tables.CsvTables(file, schema)

    @property
    def _called(self) -> str:
        return _COMPRESSIONS[self.format][self.compression]

    def _on_lines(self, file: IO[bytes], path: str) -> RowFile:
        if self.format == "csv":
            return tables.TableFile(file, path, self.schema, self.open_writer)
        return JsonLinesFile(file, path) if self.format == "jsonl" else TextFile(file, path)


class _Packed:
    """A file on lines that is compressed as a whole."""

    def __init__(self, contents: FileContents, file: IO[bytes], path: str) -> None:
        kind: Any = contents.compression
        self._packing = compressed.open_compressed(kind, file, "wb")
        self._rows = contents._on_lines(self._packing, path)
        self.takes_columns = self._rows.takes_columns

    def write(self, records: list[Any]) -> None:
        self._rows.write(records)

    def finish(self) -> None:
        self._rows.finish()
        self._packing.close()


def checked_contents(format: Any, schema: Any, compression: Any) -> FileContents:
    """The form of files that the user has asked for. Raises InvalidArgument for one that cannot be."""
    if format not in get_args(SinkFormat):
        raise InvalidArgument("format", format, f"It is one of {', '.join(get_args(SinkFormat))}.")
    known = _COMPRESSIONS[format]
    compression = next(iter(known)) if compression is None else compression
    if compression not in known:
        raise InvalidArgument("compression", compression, f"For {format} it is one of {', '.join(known)}.")
    if format == "avro":
        fastavro()
        if not has_codec(known[compression]):
            raise InvalidArgument("compression", compression, "Install what it needs: pip install 'moorline[avro]'.")
    elif known is _OF_LINES and compression == "zstd":
        compressed.zstd()
    if format == "avro" and isinstance(schema, Mapping):
        return FileContents(format, None, _checked_avro(schema), compression)
    contents = FileContents(format, _checked_schema(schema, format), None, compression)
    if contents.schema is not None:
        _try_schema(contents, contents.schema)
    return contents


def _checked_schema(schema: Any, format: str) -> pa.Schema | None:
    if schema is None:
        return None
    if format in ("jsonl", "text"):
        raise InvalidArgument("schema", schema, f"Files of format {format!r} have no columns: leave it out.")
    if not isinstance(schema, pa.Schema) or not schema.names:
        also = ", or an Avro schema as a dict" if format == "avro" else ""
        raise InvalidArgument("schema", schema, f"Give a pyarrow.Schema with columns{also}.")
    if len(set(schema.names)) < len(schema.names):
        raise InvalidArgument("schema", schema.names, "Each column needs a name of its own.")
    return schema


def _try_schema(contents: FileContents, schema: pa.Schema) -> None:
    """Write a file without rows: formats differ in the types that they have."""
    try:
        writer = contents.open_writer(io.BytesIO(), schema)
        writer.write_table(schema.empty_table())
        writer.close()
    except (pa.ArrowException, NoAvroType) as error:
        raise InvalidArgument("schema", schema.names, f"A file of format {contents.format!r}: {error}.") from None


def _checked_avro(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    library = fastavro()
    try:
        parsed = library.parse_schema(dict(schema))
    except Exception as error:  # SchemaParseException, UnknownType, and what wrong Python types lead to
        raise InvalidArgument("schema", schema, f"It is not an Avro schema: {error}.") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise InvalidArgument("schema", schema, "Give the Avro schema of a record.")
    return dict(schema)
