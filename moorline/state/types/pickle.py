"""Pickle, where a declaration asks for it by name, and only of the classes that it names.

A pickle can call anything that can be imported, so state is never pickled unless its declaration says ``Pickled``, and
then only classes of the allow-list are looked up when it is read. What has a name is never changed by a pickle, only
what the pickle itself has made (``pickle_rehearsal.py``). The same list is applied when it is written, so nothing is
stored that could not be read again.

What an allowed class does when it is unpickled (``__setstate__``, ``__init__``, ``__reduce__`` of it with other
arguments) is its own affair: allow classes whose unpickling you would trust with bytes from your storage. What would
run anything, such as ``getattr``, ``eval`` or ``os.system``, cannot be allowed. Always there are ``complex`` and the
date, time, Decimal and UUID classes, whose unpickling does nothing; dict, list, tuple, set, bytes and the like need no
name in a pickle.
"""

from __future__ import annotations

import builtins
import copyreg
import io
import pickle
import sys
import types
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timezone
from functools import cached_property
from typing import Any, NoReturn

import pyarrow as pa

from moorline.errors import PickleRefused
from moorline.model.options import checks_options
from moorline.model.type_tree import tree
from moorline.model.value_kinds import LOWERED_TYPES
from moorline.state.pickled import _named
from moorline.state.types import pickle_rehearsal
from moorline.state.types.leaf import StoredType

_ALWAYS = (complex, timezone, *LOWERED_TYPES)
_PROTOCOL = 5


@checks_options()
@dataclass(frozen=True)
class Pickled:
    """An annotation: values are pickled, and may refer to the allowed classes only.

    ``of`` is what the values are; it is allowed by itself. Classes are named by themselves or as ``module.Class``.

    >>> Pickled(allow=["sklearn.linear_model.LogisticRegression"])
    Pickled(of=<class 'object'>, allow=('sklearn.linear_model.LogisticRegression',))
    >>> from collections import OrderedDict
    >>> kept = Pickled(OrderedDict)
    >>> kept.load(kept.dump(OrderedDict(a=1)))
    OrderedDict([('a', 1)])
    """

    of: Any = object
    allow: tuple[Any, ...] = ()

    def __init__(self, of: Any = object, *, allow: Iterable[Any] = ()) -> None:
        if isinstance(allow, (str, type)):
            allow = (allow,)
        allowed = tuple(allow)
        for entry in allowed:
            if not isinstance(entry, (str, type, types.FunctionType, types.BuiltinFunctionType)):
                raise TypeError(f"allow takes classes and names such as 'package.module.Class', not {entry!r}")
            if _runs_anything(entry if isinstance(entry, str) else global_name(entry)):
                raise TypeError(f"{entry!r} is never allowed: with it a pickle could run anything")
        object.__setattr__(self, "of", of)
        object.__setattr__(self, "allow", allowed)

    @cached_property
    def allowed(self) -> dict[str, Any]:
        """By name, everything that a pickle may refer to beyond the basics; None where only the name is known."""
        is_class = isinstance(self.of, type) and self.of is not object
        entries = (*self.allow, self.of) if is_class else self.allow
        return {e if isinstance(e, str) else global_name(e): None if isinstance(e, str) else e for e in entries}

    @cached_property
    def _known(self) -> dict[str, Any]:
        return _BASICS | self.allowed

    @cached_property
    def _stand_ins(self) -> dict[str, Any]:
        return {}

    def dump(self, value: Any) -> bytes:
        """The value as a pickle. Raises ``TypeError`` for one that could not be read again."""
        if isinstance(self.of, type) and not isinstance(value, self.of):
            raise TypeError(f"a {type(value).__qualname__} is not a {self.of.__qualname__}")
        out = io.BytesIO()
        pickler = _Pickler(out, self._known)
        try:
            pickler.dump(value)
        except Exception as error:  # whatever the __reduce__ of a user's class raises
            raise TypeError(f"a {type(value).__qualname__} cannot be pickled: {error}") from error
        if pickler.refused:
            raise TypeError(str(PickleRefused(tuple(sorted(pickler.refused)), tuple(sorted(self.allowed)))))
        return out.getvalue()

    def load(self, data: bytes | memoryview) -> Any:
        """The value behind a pickle. Raises :class:`PickleRefused`, or ``ValueError`` for what is no pickle."""
        try:
            _Rehearsal(data, self._known, self._stand_ins).load()
            value = _Unpickler(data, self._known).load()
        except PickleRefused:
            raise
        except Exception as error:  # bytes that are no pickle lead anywhere
            raise ValueError(f"a pickle cannot be read: {type(error).__name__}: {error}") from error
        if isinstance(self.of, type) and not isinstance(value, self.of):
            raise ValueError(f"a pickle holds a {type(value).__qualname__} and not a {self.of.__qualname__}")
        return value


def global_name(thing: Any) -> str:
    """The name by which a pickle refers to a class or function."""
    return f"{getattr(thing, '__module__', None)}.{getattr(thing, '__qualname__', None)}"


#: Modules that no data comes from, and that would run whatever a pickle says.
_NEVER = ("os", "posix", "nt", "subprocess", "sys", "importlib", "runpy", "ctypes", "pickle", "operator", "code")
_DATA_BUILTINS = {
    *("bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "object", "range"),
    *("set", "slice", "str", "tuple"),
}


def _runs_anything(name: str) -> bool:
    module, _, rest = name.partition(".")
    if module == "builtins":
        builtin = getattr(builtins, rest, None)
        is_error = isinstance(builtin, type) and issubclass(builtin, BaseException)
        return rest not in _DATA_BUILTINS and not is_error
    return module in _NEVER


_BASICS = {global_name(cls): cls for cls in _ALWAYS}


_NAMED = global_name(_named)


class _Pickler(pickle.Pickler):
    """Notes everything that the pickle would refer to by name and that is not allowed."""

    def __init__(self, out: io.BytesIO, known: dict[str, Any]) -> None:
        super().__init__(out, _PROTOCOL)
        self._known = known
        self.refused: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        # Called for everything but the built-in data types: for classes, functions, and instances.
        if value is _named:
            return NotImplemented
        if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            name = global_name(value)
            if name not in self._known or not (self._known[name] is None or self._known[name] is value):
                return self._refuse(name)
            return NotImplemented if _is_importable(value) else (_named, (name,))
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = reduce(value) if reduce is not None else value.__reduce_ex__(_PROTOCOL)
        if isinstance(reduced, str):  # a global that is neither class nor function
            name = f"{pickle.whichmodule(value, reduced)}.{reduced}"  # type: ignore[attr-defined]
            if name not in self._known:
                return self._refuse(name)
        return reduced

    def _refuse(self, name: str) -> Any:
        self.refused.add(name)
        return _named, (name,)  # anything harmless, to find all that is refused: the pickle will not be used


def _is_importable(thing: Any) -> bool:
    if (thing.__module__, thing.__qualname__) in copyreg._extension_registry:  # type: ignore[attr-defined]
        return False  # it would be written as a number, which means something else in another process
    imported: Any = sys.modules.get(thing.__module__)
    for part in thing.__qualname__.split("."):
        imported = getattr(imported, part, None)
    return imported is thing


class _Unpickler(pickle.Unpickler):
    """Looks up what is allowed and nothing else."""

    def __init__(self, data: bytes | memoryview, known: dict[str, Any]) -> None:
        super().__init__(io.BytesIO(data), fix_imports=False)
        self._by_name = known

    def find_class(self, module: str, name: str) -> Any:
        wanted = f"{module}.{name}"
        if wanted == _NAMED:
            return self._known
        if wanted not in self._by_name:
            self._refuse(wanted)
        # A class that was given as such needs no import, and could be one that has no module to import.
        known = self._by_name[wanted]
        return super().find_class(module, name) if known is None else known

    def _known(self, wanted: str) -> Any:
        known = self._by_name.get(wanted)
        return self._refuse(wanted) if known is None else known

    def _refuse(self, wanted: str) -> NoReturn:
        raise PickleRefused((wanted,), tuple(sorted(self._by_name.keys() - _BASICS.keys())))


class _Rehearsal(_Unpickler):
    """Finds a stand-in for everything that has a name (``pickle_rehearsal.py``)."""

    def __init__(self, data: bytes | memoryview, known: dict[str, Any], stand_ins: dict[str, Any]) -> None:
        super().__init__(data, known)
        self._stand_ins = stand_ins
        if pickle_rehearsal.refers_by_number(data):
            self._refuse("a number of copyreg.add_extension")

    def find_class(self, module: str, name: str) -> Any:
        wanted = f"{module}.{name}"
        if wanted == _NAMED:
            return pickle_rehearsal.NamedGlobal(_NAMED, _refuse_change, self._known)
        known = self._stand_ins.get(wanted)
        return self._stand_in(wanted, super().find_class(module, name)) if known is None else known

    def _known(self, wanted: str) -> Any:
        known = self._stand_ins.get(wanted)
        return self._stand_in(wanted, super()._known(wanted)) if known is None else known

    def _stand_in(self, wanted: str, target: Any) -> Any:
        made = self._stand_ins[wanted] = pickle_rehearsal.stand_in(target, wanted, _refuse_change)
        return made


def _refuse_change(name: str) -> NoReturn:
    raise PickleRefused((name,), (), would_change=True)


class PickledType(StoredType):
    """The stored form of :class:`Pickled`."""

    arrow = pa.binary()
    is_immutable = False
    wire = bytes

    def __init__(self, annotation: Pickled) -> None:
        self.annotation = annotation
        self.tree = tree.Pickle(tuple(sorted(annotation.allowed)))
        self.lower, self.lift = self._lower, self._lift

    def to_array(self, values: list[Any]) -> pa.Array:
        return pa.array([self._lower(v) for v in values], self.arrow)

    def from_array(self, array: pa.Array) -> list[Any]:
        return [self._lift(v) for v in array.to_pylist()]

    def _lower(self, value: Any) -> bytes | None:
        return None if value is None else self.annotation.dump(value)

    def _lift(self, data: bytes | None) -> Any:
        return None if data is None else self.annotation.load(data)
