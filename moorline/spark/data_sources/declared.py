"""A Python data source of PySpark, as it is declared: which class, with which options and which schema."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import Row
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource
from pyspark.sql.types import DataType, StructType

from moorline.errors import InvalidArgument


@dataclass(frozen=True)
class Declared:
    """The columns that a user has declared. It is made into objects wherever they are needed."""

    kind: type[DataSource]
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # there may be passwords in them
    schema: StructType | str | None = None

    @property
    def name(self) -> str:
        return str(self.kind.name())

    def source(self) -> DataSource:
        """The data source. Spark gives it its options in a dict that does not mind upper case."""
        return self.kind(CaseInsensitiveDict(dict(self.options)))

    def struct(self, source: DataSource) -> StructType:
        """The schema. A text is parsed by Spark, so there must be one in this process."""
        schema = source.schema() if self.schema is None else self.schema
        if isinstance(schema, str):
            try:
                schema = DataType.fromDDL(schema)
            except (AssertionError, RuntimeError, AttributeError) as error:
                advice = f"Spark parses it, and there is none here ({error}). Give a StructType."
                raise InvalidArgument("schema", schema, advice) from None
        if not isinstance(schema, StructType):
            raise InvalidArgument("schema", schema, f"{self.name} must have a StructType, or the text of one.")
        return schema

    def part(self, method: str, schema: StructType, *more: Any) -> Any:
        """A reader or a writer of it. Raises InvalidArgument if it has none."""
        made = self.find(method, schema, *more)
        if made is None:
            raise InvalidArgument("data source", self.name, f"It has no {method}().")
        return made

    def find(self, method: str, schema: StructType, *more: Any) -> Any | None:
        """A reader or a writer of it, or None if it has none."""
        try:
            return getattr(self.source(), method)(schema, *more)
        except PySparkNotImplementedError:
            return None


def declared(source: Any, options: Mapping[str, str] | None, schema: Any) -> Declared:
    """Check what a user has given."""
    if schema is not None and not isinstance(schema, (StructType, str)):
        raise InvalidArgument("schema", schema, "Give a StructType, or the text of one.")
    given = {str(name): str(value) for name, value in (options or {}).items()}
    return Declared(_kind_of(source), given, schema)


def _kind_of(source: Any) -> type[DataSource]:
    if isinstance(source, type) and issubclass(source, DataSource):
        return source
    if not isinstance(source, str):
        raise InvalidArgument(
            "source", source, "Give a class derived from pyspark.sql.datasource.DataSource, or its name."
        )
    found: dict[str, type[DataSource]] = {}
    # As Spark finds them: packages called pyspark_* with a DefaultSource.
    for info in pkgutil.iter_modules():
        if info.name.startswith("pyspark_"):
            kind = getattr(importlib.import_module(info.name), "DefaultSource", None)
            if isinstance(kind, type) and issubclass(kind, DataSource):
                found[Declared(kind).name] = kind
    if source not in found:
        known = ", ".join(sorted(found)) or "none"
        advice = f"Installed Python data sources: {known}. Give the class of one that is registered in a session only."
        raise InvalidArgument("source", source, advice)
    return found[source]


def as_rows(source: str, names: list[str], produced: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The rows that a reader of PySpark produces (tuples, Rows or Arrow batches) as dicts."""
    for item in produced:
        if isinstance(item, pa.RecordBatch):
            if item.schema.names != names:
                raise InvalidArgument(source, item.schema.names, f"Its schema has the columns {', '.join(names)}.")
            yield from item.to_pylist()
        elif isinstance(item, Row) and hasattr(item, "__fields__"):
            if set(item.__fields__) != set(names):
                raise InvalidArgument(source, item, f"Its schema has the columns {', '.join(names)}.")
            yield {name: item[name] for name in names}
        elif isinstance(item, (tuple, list)) and len(item) == len(names):
            yield dict(zip(names, item))
        else:
            raise InvalidArgument(source, item, f"Its schema has the columns {', '.join(names)}.")
