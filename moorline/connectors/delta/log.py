"""The log of a Delta table, entry by entry: which files a version has added, and whether it has taken data away.

    <table>/_delta_log/00000000000000000042.json    one action per line; of these we read add and remove

A rewrite that changes no data (``optimize``) says so with ``dataChange``: its files hold nothing new.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from moorline.connectors.delta.partitions import partition_text
from moorline.connectors.delta.table import TableLocation
from moorline.errors import StorageError


@dataclass(frozen=True)
class DataFile:
    """A file of a table, with the values of the columns that the table is partitioned by."""

    path: str
    partition: dict[str, str | None]


@dataclass(frozen=True)
class Version:
    """The changes of one version."""

    number: int
    added: list[DataFile]
    #: The number of files whose data it has taken away.
    removed: int


def read_version(location: TableLocation, number: int) -> Version:
    """One entry of the log. Raises StorageError if it is not there any more."""
    path = f"_delta_log/{number:020}.json"
    try:
        lines = location.read(path).splitlines()
    except FileNotFoundError:
        cause = f"version {number} is not in its log any more: what was added since then cannot be told from the rest"
        raise StorageError(location.uri, "follow the table", cause, can_pass=False) from None
    actions = [json.loads(line) for line in lines if line.strip()]
    added = [_data_file(location, a["add"]) for a in actions if "add" in a and a["add"].get("dataChange", True)]
    removed = sum(1 for a in actions if "remove" in a and a["remove"].get("dataChange", True))
    return Version(number, added, removed)


def files_of(table: DeltaTable) -> list[DataFile]:
    """All files of a table as it is."""
    rows = pa.table(table.get_add_actions()).to_pylist()
    return [
        DataFile(unquote(row["path"]), {name: partition_text(v) for name, v in (row.get("partition") or {}).items()})
        for row in rows
    ]


def _data_file(location: TableLocation, add: dict[str, Any]) -> DataFile:
    if add.get("deletionVector"):
        cause = f"rows of {add['path']} are deleted by a deletion vector, which is not supported"
        raise StorageError(location.uri, "read the table", cause, can_pass=False)
    return DataFile(unquote(add["path"]), dict(add.get("partitionValues") or {}))
