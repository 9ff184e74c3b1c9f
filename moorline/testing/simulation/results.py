"""The results of a simulated run, sink by sink, and the difference of two runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

#: By the name of a ``mo.collect``, or the uid of any other sink: its records, in no certain order.
Results = dict[str, list[Any]]

#: So many records are shown of those that are missing, or too many.
SHOWN = 5


def difference(expected: Results, found: Results) -> str:
    """The difference of ``found`` and ``expected`` as multisets, a line per sink; empty if there is none.

    >>> difference({"out": [1, 2, 2]}, {"out": [2, 1, 3]})
    "sink 'out': missing 2; too many 3"
    """
    lines = []
    for sink in dict.fromkeys([*expected, *found]):
        wanted, there = _counted(expected.get(sink, [])), _counted(found.get(sink, []))
        said = [
            f"{word} {_shown(records)}"
            for word, records in (("missing", _minus(wanted, there)), ("too many", _minus(there, wanted)))
            if records
        ]
        if said:
            lines.append(f"sink {sink!r}: {'; '.join(said)}")
    return "\n".join(lines)


def _counted(records: list[Any]) -> dict[Any, tuple[int, Any]]:
    """The number of times that each record is there, by its canonical form, and the record."""
    forms = [canonical(record) for record in records]
    samples = dict(zip(forms, records))
    return {form: (count, samples[form]) for form, count in Counter(forms).items()}


def _minus(some: dict[Any, tuple[int, Any]], others: dict[Any, tuple[int, Any]]) -> list[tuple[int, Any]]:
    left = [(count - others.get(form, (0, None))[0], record) for form, (count, record) in some.items()]
    return [(count, record) for count, record in left if count > 0]


def _shown(records: list[tuple[int, Any]]) -> str:
    said = [repr(record) + (f" x {count}" if count > 1 else "") for count, record in records[:SHOWN]]
    more = sum(count for count, _ in records[SHOWN:])
    return ", ".join(said) + (f" and {more} more" if more else "")


def canonical(record: Any) -> Any:
    """A record as something that can be counted: equal for records that say the same.

    Lists and tuples are one (a snapshot may make one of the other), and an object is its class and its fields.

    >>> canonical([1, {"b": {2}}]) == canonical((1, {"b": {2}}))
    True
    """
    if record is None or isinstance(record, (bool, int, str, bytes)):
        return record
    if isinstance(record, float):
        return record if record == record else "nan"
    if isinstance(record, (list, tuple)):
        return tuple(map(canonical, record))
    if isinstance(record, dict):
        return "dict", frozenset((canonical(k), canonical(v)) for k, v in record.items())
    if isinstance(record, (set, frozenset)):
        return "set", frozenset(map(canonical, record))
    if isinstance(record, msgspec.Struct):
        return type(record).__qualname__, canonical({f: getattr(record, f) for f in record.__struct_fields__})
    if is_dataclass(record):
        return type(record).__qualname__, canonical({f.name: getattr(record, f.name) for f in fields(record)})
    if not any("__eq__" in vars(cls) for cls in type(record).__mro__[:-1]) and hasattr(record, "__dict__"):
        return type(record).__qualname__, canonical(vars(record))
    return record if type(record).__hash__ is not None else repr(record)
