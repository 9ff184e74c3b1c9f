"""Keys and values as JSON, without losing what they are.

    JSON                                  a value                    a key
    number, text, true, false             the same                   the same
    null                                  None                       (no key)
    [...]                                 a list                     a tuple
    {"tuple": [...]}, {"set": [...]},     that                       a tuple
      {"frozenset": [...]}
    {"bytes": "<base64>"}                 bytes                      bytes
    {"date": "2024-05-01"}, {"datetime": ...},                       that
      {"time": ...}, {"uuid": ...}
    {"timedelta": <microseconds>},        that
      {"decimal": "1.20"}
    {"int": "9007199254740993"}           a number that others would round: browsers, jq
    {"float": "nan" | "inf" | "-inf"}     that                       inf and -inf
    {"dict": [[key, value], ...]}         a dict whose keys are not text, or that looks like one of these
    {"array": {"dtype", "shape", "data"}} a NumPy array
    {"datetime64": ...}, {"timedelta64": ...}                        (no key)
    {"encoded": "<base64>"}               (no value)                 a key of any class, by its stable encoding
    {...}                                 a dict with texts as keys

Only these are built, whatever comes in. Used by the server, by the client and by the command line.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import numpy as np

from moorline.model import keys
from moorline.model.value_kinds import LOWERED, LoweredKind

_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
#: Whole numbers beyond it are rounded where JSON's numbers are floats.
_MOST_EXACT = (1 << 53) - 1
_INT = re.compile(r"-?[0-9]{1,4000}")
#: Honest keys and values are not nested deeper than this.
_DEPTH = 60


# --- values -------------------------------------------------------------------------------------


def to_json(value: Any) -> Any:
    """A value as JSON would hold it.

    >>> to_json({"at": (1, 2.5), "seen": {b"x"}})
    {'at': {'tuple': [1, 2.5]}, 'seen': {'set': [{'bytes': 'eA=='}]}}
    """
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if -_MOST_EXACT <= value <= _MOST_EXACT else {"int": str(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if kind is list:
        return [to_json(v) for v in value]
    if kind is dict:
        if all(type(k) is str for k in value) and not (len(value) == 1 and next(iter(value)) in _BUILDS):
            return {k: to_json(v) for k, v in value.items()}
        return {"dict": [[to_json(k), to_json(v)] for k, v in value.items()]}
    if kind in (tuple, set, frozenset):
        return {kind.__name__: [to_json(v) for v in value]}
    if isinstance(value, (np.datetime64, np.timedelta64)):
        unit, _ = np.datetime_data(value.dtype)
        return {type(value).__name__: [int(value.view(np.int64)), unit]}
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": {"dtype": value.dtype.str, "shape": list(value.shape), "data": data}}
    if isinstance(value, np.generic):
        return to_json(value.item())
    return _rarer(value)


def _rarer(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, datetime):  # by its own method: the moments of an Arrow state can have nanoseconds
        return {"datetime": value.isoformat()}
    for kind in LOWERED:
        if isinstance(value, kind.type):
            return {kind.name.lower(): kind.json.lower(value)}
    return repr(value)  # nothing that a state can hold comes here; if it does, people can still read it


def from_json(thing: Any, depth: int = 0) -> Any:
    """The value behind JSON. Raises ``ValueError`` for what is none.

    >>> from_json({"tuple": [1, {"bytes": "eA=="}]})
    (1, b'x')
    """
    if depth > _DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(thing, list):
        return [from_json(t, depth + 1) for t in thing]
    if not isinstance(thing, dict):
        return thing
    if len(thing) == 1:
        ((name, content),) = thing.items()
        if name in _BUILDS:
            try:
                return _BUILDS[name](content, depth + 1)
            except RecursionError:
                raise
            except Exception as error:  # each builder has its own way to say that this is none of its kind
                raise ValueError(f"{content!r:.100} is no {name}: {error}") from None
    return {k: from_json(v, depth + 1) for k, v in thing.items()}


def _items(build: Callable[[list[Any]], Any]) -> Callable[[Any, int], Any]:
    return lambda content, depth: build([from_json(c, depth) for c in _list(content)])


def _lift(kind: LoweredKind) -> Callable[[Any, int], Any]:
    return lambda content, depth: kind.json.lift(content)


def _list(content: Any) -> list[Any]:
    if not isinstance(content, list):
        raise ValueError("a list is wanted")
    return content


def _array(content: Any, depth: int) -> Any:
    dtype = np.dtype(str(content["dtype"]))
    if dtype.hasobject:
        raise ValueError("an array of objects is not data")
    data = base64.b64decode(content["data"], validate=True)
    return np.frombuffer(data, dtype).reshape([int(n) for n in _list(content["shape"])])


def _float(content: Any, depth: int) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise ValueError("write other numbers as they are")
    return float(content)


def _int(content: Any) -> int:
    if not isinstance(content, str) or not _INT.fullmatch(content):
        raise ValueError("write a whole number as text")
    return int(content)


def _base64(content: Any, depth: int = 0) -> bytes:
    return base64.b64decode(content, validate=True)


def _numpy_time(content: Any, name: str) -> Any:
    count, unit = content[0], content[1]
    if unit not in _UNITS:
        raise ValueError("there is no such unit of time")
    return np.int64(count).view(f"{name}[{unit}]")


_BUILDS: dict[str, Callable[[Any, int], Any]] = {
    "tuple": _items(tuple),
    "set": _items(set),
    "frozenset": _items(frozenset),
    "bytes": _base64,
    **{kind.name.lower(): _lift(kind) for kind in LOWERED},
    "int": lambda content, depth: _int(content),
    "float": _float,
    "dict": lambda content, depth: {from_json(k, depth): from_json(v, depth) for k, v in _list(content)},
    "array": _array,
    "datetime64": lambda content, depth: _numpy_time(content, "datetime64"),
    "timedelta64": lambda content, depth: _numpy_time(content, "timedelta64"),
}


# --- keys ---------------------------------------------------------------------------------------


def encoded_key_to_json(encoded: bytes) -> Any:
    """A key as JSON, whatever class it is of.

    >>> key_from_json(encoded_key_to_json(keys.encode(("a", 1)))) == key_from_json(["a", 1]) == keys.encode(("a", 1))
    True
    """
    return {"encoded": base64.b64encode(encoded).decode()}


def key_from_json(thing: Any) -> bytes:
    """The encoding of the key behind JSON. Raises ``ValueError`` (``NotAKey`` is one) for what can be no key."""
    if isinstance(thing, dict) and set(thing) == {"encoded"}:
        try:
            encoded = _base64(thing["encoded"])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{thing['encoded']!r:.100} is no base64: {error}") from None
        with suppress(keys.UnknownClass):  # the class is the job's
            keys.decode(encoded)
        return encoded
    return keys.encode(_tuples(from_json(thing)))


def _tuples(value: Any) -> Any:
    """A list cannot be a key, so it stands for a tuple."""
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value
