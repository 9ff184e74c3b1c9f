"""NumPy's scalars and arrays as state. Nothing here is ever pickled.

    np.int8 ... np.uint64, np.float32/64, np.bool_   the Arrow type of that width; back as that scalar
    np.datetime64, np.timedelta64                    timestamp[ns], duration[ns]: nanoseconds hold what pandas and
                                                     Arrow hold (years 1678 to 2262); other units are converted if
                                                     that is exact, else refused. NaT stays NaT
    np.ndarray                                       struct<dtype, shape, data: binary>, any dtype without objects
    NDArray[np.float32] and the like                 struct<shape, data: list<float>>: readable by anybody

A number is taken if the type can hold exactly it. An array must be a real ``ndarray`` (a masked one would lose its
mask) and of that dtype, whatever its byte order; it comes back in C order, as a fresh one that can be written to.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa

from moorline.model.type_tree import tree
from moorline.model.type_tree.tree import ANY_ARRAY
from moorline.model.value_kinds import NUMPY_NUMBERS, python_number
from moorline.state.types.leaf import StoredType

_INT64 = 1 << 63
_NAT = -_INT64


class NumpyType(StoredType):
    """A number or truth value of a fixed width."""

    def __init__(self, name: str, kind: type[np.generic]) -> None:
        self.tree, self.kind = tree.Word(name), kind
        self.arrow = pa.from_numpy_dtype(np.dtype(kind))
        self.wire: Any = {"f": float, "b": bool}.get(np.dtype(kind).kind, int)
        self.lower, self.lift = self._lower, self._lift

    def to_array(self, values: list[Any]) -> pa.Array:
        return pa.array([self._lower(v) for v in values], self.arrow)

    def from_array(self, array: pa.Array) -> list[Any]:
        return [self._lift(v) for v in array.to_pylist()]

    def _lower(self, value: Any) -> Any:
        if type(value) is self.kind:
            return value.item()
        if value is None:
            return None
        number = python_number(value)
        is_fit = isinstance(number, (int, float) if self.wire is float else self.wire)
        if not is_fit or isinstance(number, bool) is not (self.wire is bool):
            raise TypeError(f"a {type(value).__qualname__} is not a {self.name}")
        with np.errstate(over="ignore"):
            fitted = self._lift(number).item()
        if fitted != number and not (number != number and fitted != fitted):
            raise ValueError(f"{number!r:.50} is not exactly a {self.name}; write {self.name}({number!r:.50})")
        return self.wire(number)

    def _lift(self, value: Any) -> Any:
        try:
            return None if value is None else self.kind(value)
        except OverflowError as error:
            raise ValueError(f"{value!r:.50} is out of range for {self.name}: {error}") from error


class NumpyTimeType(StoredType):
    """A moment or a duration in nanoseconds; NaT is the smallest number, as in NumPy."""

    def __init__(self, kind: type[np.datetime64] | type[np.timedelta64]) -> None:
        self.kind = kind
        self.tree = tree.Word(f"np.{kind.__name__}")
        self.arrow = pa.timestamp("ns") if kind is np.datetime64 else pa.duration("ns")
        self.wire, self.lower, self.lift = int, self._lower, self._lift

    def to_array(self, values: list[Any]) -> pa.Array:
        return pa.array([self._lower(v) for v in values], pa.int64()).view(self.arrow)

    def from_array(self, array: pa.Array) -> list[Any]:
        return [self._lift(v) for v in array.view(pa.int64()).to_pylist()]

    def _lower(self, value: Any) -> int | None:
        if value is None:
            return None
        if type(value) is not self.kind:
            raise TypeError(f"a {type(value).__qualname__} is not a {self.name}")
        if np.isnat(value):
            return _NAT
        unit, step = np.datetime_data(value.dtype)
        if unit in ("Y", "M") and self.kind is np.datetime64:  # as a duration they have no fixed length
            if abs(int(value.view(np.int64))) * step > _FAR:
                raise ValueError(f"{value!r} is out of range")
            value, unit, step = value.astype("datetime64[D]"), "D", 1
        if unit not in _NANOSECONDS:
            raise ValueError(f"{value!r} is of no fixed length")
        times, per = _NANOSECONDS[unit]
        count, rest = divmod(int(value.view(np.int64)) * step * times, per)
        if rest or not -_INT64 < count < _INT64:
            raise ValueError(f"{value!r} is not a whole number of nanoseconds within 64 bits")
        return count

    def _lift(self, count: int | None) -> Any:
        return None if count is None else self.kind(count, "ns")


#: Nanoseconds per unit, as a fraction.
_NANOSECONDS = {
    "W": (7 * 86_400 * 10**9, 1),
    "D": (86_400 * 10**9, 1),
    "h": (3_600 * 10**9, 1),
    "m": (60 * 10**9, 1),
    "s": (10**9, 1),
    "ms": (10**6, 1),
    "us": (10**3, 1),
    "ns": (1, 1),
    "ps": (1, 10**3),
    "fs": (1, 10**6),
    "as": (1, 10**9),
}
#: Months and years within which NumPy does not wrap around.
_FAR = 10**6


class ArrayType(StoredType):
    """An array of any dtype but objects; with a ``scalar``, only of dtypes of that kind."""

    tree = ANY_ARRAY
    arrow = pa.struct([("dtype", pa.string()), ("shape", pa.list_(pa.int64())), ("data", pa.binary())])
    is_immutable = False
    wire = tuple[str, list[int], bytes]

    def __init__(self, scalar: type[np.generic] = np.generic) -> None:
        self._scalar = scalar
        self.lower, self.lift = self._lower, self._lift

    def to_array(self, values: list[Any]) -> pa.Array:
        rows = [self._lower(v) for v in values]
        return pa.array([None if r is None else dict(zip(("dtype", "shape", "data"), r)) for r in rows], self.arrow)

    def from_array(self, array: pa.Array) -> list[Any]:
        return [None if v is None else self._lift((v["dtype"], v["shape"], v["data"])) for v in array.to_pylist()]

    def _lower(self, value: Any) -> tuple[str, list[int], bytes] | None:
        if value is None:
            return None
        check_array(value)
        if value.dtype.hasobject:
            raise TypeError(f"an array of dtype {value.dtype} holds Python objects, which cannot be stored")
        if not issubclass(value.dtype.type, self._scalar):
            raise TypeError(f"an array of dtype {value.dtype} is not one of {self._scalar.__name__}")
        description = np.lib.format.dtype_to_descr(value.dtype)
        spelled = description if isinstance(description, str) else json.dumps(description)
        if _dtype(spelled) != value.dtype:
            raise TypeError(f"an array of dtype {value.dtype} cannot be stored")
        return spelled, list(value.shape), value.tobytes()

    def _lift(self, row: tuple[str, list[int], bytes] | None) -> Any:
        if row is None:
            return None
        spelled, shape, data = row
        try:
            dtype = _dtype(spelled)
            if dtype.hasobject:
                raise ValueError("it would hold Python objects")
            return fresh(data, dtype, shape)
        except (TypeError, ValueError, OverflowError, RecursionError, KeyError, IndexError) as error:
            raise ValueError(f"an array of dtype {spelled!r:.100} and shape {shape!r:.100}: {error}") from None


class TypedArrayType(StoredType):
    """An array of one dtype that Arrow has too."""

    is_immutable = False
    wire = tuple[list[int], bytes]

    def __init__(self, item: NumpyType) -> None:
        self.item = item
        self.tree = tree.Array(item.name)
        self.arrow = pa.struct([("shape", pa.list_(pa.int64())), ("data", pa.list_(item.arrow))])
        self.dtype = np.dtype(item.kind)
        self.lower, self.lift = self._lower, self._lift

    def to_array(self, values: list[Any]) -> pa.Array:
        arrays = [None if v is None else self._checked(v) for v in values]
        flat = [a.ravel() for a in arrays if a is not None]
        offsets = np.cumsum([0, *(0 if a is None else a.size for a in arrays)])
        numbers = pa.array(np.concatenate(flat) if flat else np.empty(0, self.dtype), self.item.arrow)
        data = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), numbers)
        shapes = pa.array([None if a is None else list(a.shape) for a in arrays], pa.list_(pa.int64()))
        nulls = pa.array([a is None for a in arrays], pa.bool_())
        return pa.StructArray.from_arrays([shapes, data], fields=list(self.arrow), mask=nulls)

    def from_array(self, array: pa.Array) -> list[Any]:
        shapes, data = array.flatten()
        return [
            None if shape is None else self._shaped(numbers.values.to_numpy(zero_copy_only=False), shape)
            for shape, numbers in zip(shapes.to_pylist(), data)
        ]

    def _shaped(self, numbers: Any, shape: list[int]) -> Any:
        return np.array(numbers, self.dtype).reshape(shape)

    def _checked(self, value: Any) -> Any:
        check_array(value)
        if not np.can_cast(value.dtype, self.dtype, "equiv"):
            raise TypeError(f"an array of dtype {value.dtype} is not one of {self.dtype}")
        return value.astype(self.dtype, copy=False)

    def _lower(self, value: Any) -> tuple[list[int], bytes] | None:
        if value is None:
            return None
        array = self._checked(value)
        return list(array.shape), array.astype(self.dtype.newbyteorder("<"), copy=False).tobytes()

    def _lift(self, row: tuple[list[int], bytes] | None) -> Any:
        if row is None:
            return None
        shape, data = row
        return fresh(data, self.dtype.newbyteorder("<"), shape).astype(self.dtype, copy=False)


def check_array(value: Any) -> None:
    """Raises unless it is an ndarray and no subclass, which could lose what it adds."""
    if type(value) is not np.ndarray:
        raise TypeError(f"a {type(value).__qualname__} is not an ndarray")


def fresh(data: bytes, dtype: np.dtype[Any], shape: list[int]) -> Any:
    """A new array that owns its memory. Raises ``ValueError`` if the bytes are not exactly those of the shape."""
    if any(n < 0 for n in shape) or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{len(data)} bytes are not an array of dtype {dtype} and shape {shape!r:.100}")
    try:
        return np.ndarray(shape, dtype, data).copy()
    except (OverflowError, TypeError) as error:
        raise ValueError(f"an array of shape {shape!r:.100}: {error}") from error


def _dtype(spelled: str) -> np.dtype[Any]:
    """The dtype behind its text; that of one with fields is JSON, which has made lists of its tuples."""
    if not spelled.startswith("["):
        return np.dtype(spelled)

    def field(parts: list[Any]) -> Any:
        name = tuple(parts[0]) if isinstance(parts[0], list) else parts[0]
        kind = list(map(field, parts[1])) if isinstance(parts[1], list) else parts[1]
        return (name, kind, *(tuple(shape) for shape in parts[2:]))

    return np.lib.format.descr_to_dtype(list(map(field, json.loads(spelled))))


_SCALARS: dict[str, StoredType] = {
    t.name: t
    for t in [
        *(NumpyType(name, scalar) for name, scalar in NUMPY_NUMBERS.items()),
        NumpyTimeType(np.datetime64),
        NumpyTimeType(np.timedelta64),
    ]
}


def scalar_type(annotation: Any) -> StoredType | None:
    """The stored form of a NumPy scalar class, if it has one."""
    if not (isinstance(annotation, type) and issubclass(annotation, np.generic)):
        return None
    if annotation in (np.datetime64, np.timedelta64):
        return _SCALARS[f"np.{annotation.__name__}"]
    try:
        return _SCALARS.get(f"np.{np.dtype(annotation).name}")
    except TypeError:  # an abstract one, such as np.integer
        return None


def array_type(arguments: tuple[Any, ...]) -> StoredType:
    """The stored form of ``np.ndarray[shape, np.dtype[scalar]]``; without arguments, of any array.

    An array of what Arrow has no column for (text, complex numbers, moments) is stored as one of any dtype would be.
    """
    inner = getattr(arguments[1], "__args__", ()) if len(arguments) == 2 else ()
    scalar = inner[0] if inner and isinstance(inner[0], type) else np.generic
    item = scalar_type(scalar)
    return TypedArrayType(item) if isinstance(item, NumpyType) else ArrayType(scalar)


def named_scalar(word: str) -> StoredType | None:
    """The scalar type that is spelled so."""
    return _SCALARS.get(word)
