"""The features that a Delta table asks of its readers and writers: refused by name where it cannot be given.

The library opens tables that it cannot read whole, and adds files to a log without a look into them. Without this the
columns of a table that maps their names would all be null, rows that a deletion vector removes would be back, and rows
would go past a table's constraints.
"""

from __future__ import annotations

import json

from deltalake import DeltaTable

#: Of readers, those that ask nothing of one who reads files by the log.
_READABLE = frozenset({"timestampNtz", "vacuumProtocolCheck"})
_MAPPING, _MODE = "columnMapping", "delta.columnMapping.mode"
_WHY = {
    "deletionVectors": "rows of its files are deleted beside them",
    "typeWidening": "its files may have other types than it has",
    "v2Checkpoint": "its log has another form",
}
_CONSTRAINT = "delta.constraints."
#: Of a column, what a writer would have to do about it.
_OF_COLUMNS = {
    "delta.generationExpression": "is generated",
    "delta.invariants": "has a condition",
    "delta.identity.start": "numbers its rows",
}


def unreadable(table: DeltaTable) -> str | None:
    """The reason why a table cannot be read here; None if it can."""
    if (mapped := _mapping(table)) is not None:
        return mapped
    features = set(table.protocol().reader_features or ()) - _READABLE - {_MAPPING}
    for feature in sorted(features):
        return f"it has the feature {feature}{_because(feature)}, which is not supported"
    return None


def unwritable(table: DeltaTable) -> str | None:
    """The reason why a table cannot be written to here; None if it can."""
    if (mapped := _mapping(table)) is not None:
        return mapped
    configuration = table.metadata().configuration
    conditions = sorted(name.removeprefix(_CONSTRAINT) for name in configuration if name.startswith(_CONSTRAINT))
    if conditions:
        return f"it has the constraint {conditions[0]}, and files that are added to it are not looked into"
    if str(configuration.get("delta.enableRowTracking", "")).lower() == "true":
        return "it tracks rows, which is not supported"
    for field in json.loads(table.schema().to_json())["fields"]:
        for name, what in _OF_COLUMNS.items():
            if name in (field.get("metadata") or {}):
                return f"its column {field['name']} {what}, and files that are added to it are not looked into"
    return None


def _mapping(table: DeltaTable) -> str | None:
    mode = str(table.metadata().configuration.get(_MODE, "none"))
    if mode == "none":
        return None
    return f"its columns have other names in its files ({_MODE} is {mode}), which is not supported"


def _because(feature: str) -> str:
    return f" ({_WHY[feature]})" if feature in _WHY else ""
