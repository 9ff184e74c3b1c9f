"""``mo.read_spark_source``: a Python data source of PySpark as a source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from moorline.api.sources import Source
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options
from moorline.spark.data_sources.batch import BatchSource
from moorline.spark.data_sources.declared import declared
from moorline.spark.data_sources.stream import StreamSource, check_interval


@checks_options()
def read_spark_source(
    source: type[DataSource] | str,
    options: Mapping[str, str] | None = None,
    *,
    schema: StructType | str | None = None,
    follow: bool = False,
    interval: Duration = "1s",
) -> Source[dict[str, Any]]:
    """Read a Python data source of PySpark, without Spark's own streaming. Records are dicts.

    ``source`` is a class derived from ``pyspark.sql.datasource.DataSource``, or the name of one that is installed as a
    package ``pyspark_…``. Its ``reader()`` is read to the end; with ``follow`` its ``streamReader()`` or
    ``simpleStreamReader()`` is, for ever, and asked for new offsets every ``interval``. ``schema``: instead of its own.

    After a restart a partition is read again from its beginning, and the rows that a checkpoint covers are passed over.
    So each row counts once if the data source produces the same rows in the same order for the same partition, and
    plans the same partitions for the same offsets, as Spark's own streaming asks of it too.

    >>> from pyspark.sql.datasource import DataSource
    >>> class Numbers(DataSource):
    ...     pass
    >>> read_spark_source(Numbers, {"rows": "10"}, schema="n int").is_bounded
    True
    """
    given = declared(source, options, schema)
    if follow:
        return StreamSource(given, check_interval(milliseconds(interval, "interval")))
    return BatchSource(given)
