"""Users' functions and classes as bytes: cloudpickle, and msgspec structs with their fields.

A class of the user's script is sent by value, because no other process can import the script. cloudpickle makes it
empty where it arrives, and sets its attributes one by one. A struct has the fields that its class was made with, and
gets no others afterwards: made like that it would have none. So a struct class is made with its fields at once, and
only its other attributes, which may name the class itself, are set afterwards.
"""

from __future__ import annotations

import io
import pickle
import types
from typing import Any

import cloudpickle
import msgspec
from cloudpickle import cloudpickle as internals

_StructMeta = type(msgspec.Struct)
#: The options of a struct class that its configuration has under the same name.
_OPTIONS = (
    "frozen",
    "eq",
    "order",
    "array_like",
    "gc",
    "repr_omit_defaults",
    "omit_defaults",
    "forbid_unknown_fields",
    "cache_hash",
    "tag",
    "tag_field",
)
#: What the class has by being made.
_MADE = ("__slots__", "__annotations__", "__module__", "__match_args__", "__annotations_cache__")


class _Probe(msgspec.Struct):
    made_anew: list[Any] = msgspec.field(default_factory=list)


_Factory = type(_Probe.__struct_defaults__[0])


def dumps(code: object) -> bytes:
    """Anything that cloudpickle takes, as bytes.

    >>> class Sale(msgspec.Struct):
    ...     cents: int = 0
    >>> loads(dumps(lambda: Sale(5)))()
    Sale(cents=5)
    """
    with io.BytesIO() as out:
        _Pickler(out, protocol=5).dump(code)
        return out.getvalue()


def loads(data: bytes) -> Any:
    """The same again, in this process or another one of the job. It runs what is in it."""
    return pickle.loads(data)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it is not typed
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _StructMeta) and not internals._should_pickle_by_reference(obj):
            return _reduced(obj)
        return super().reducer_override(obj)


def _reduced(cls: Any) -> tuple[Any, ...]:
    """A struct class in the form that pickle wants: a function, its arguments, and what is set afterwards."""
    attributes, slots = internals._class_getstate(cls)
    own = dict(cls.__annotations__) if "__slots__" in vars(cls) else {}
    fields = {name: _field(cls, name) for name in own if name in cls.__struct_fields__}
    options = {name: getattr(cls.__struct_config__, name) for name in _OPTIONS}
    options["kw_only"] = any(name not in cls.__match_args__ for name in fields)
    # These cannot be taken back from what a base class has, not even by saying so again.
    options |= {name: True for name in ("weakref", "dict") if getattr(cls.__struct_config__, name)}
    rest = {name: value for name, value in attributes.items() if name not in (*_MADE, *fields)}
    made = (cls.__name__, internals._get_bases(cls), cls.__module__, own, fields, options, "__post_init__" in rest)
    return make_struct, (*made, internals._get_or_create_tracker_id(cls)), (rest, slots), None, None, _set_rest


def _field(cls: Any, name: str) -> tuple[str, bool, Any]:
    """The name of a field on the wire, whether its default is made by a function, and that default."""
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    at = names.index(name)
    behind = at - (len(names) - len(defaults))
    default: Any = defaults[behind] if behind >= 0 else msgspec.NODEFAULT
    is_made = isinstance(default, _Factory)
    return cls.__struct_encode_fields__[at], is_made, default.factory if is_made else default


def make_struct(
    name: str,
    bases: tuple[Any, ...],
    module: str,
    annotations: dict[str, Any],
    fields: dict[str, tuple[str, bool, Any]],
    options: dict[str, Any],
    has_post_init: bool,
    tracker: str,
) -> Any:
    """A struct class, or the one that was made of the same before. Called by pickle."""

    def fill(namespace: dict[str, Any]) -> None:
        namespace |= {"__module__": module, "__annotations__": annotations}
        if has_post_init:
            namespace["__post_init__"] = _post_init
        for field, (encoded, is_made, default) in fields.items():
            given: dict[str, Any] = {"default_factory" if is_made else "default": default}
            namespace[field] = msgspec.field(**given, name=encoded)

    return internals._lookup_class_or_track(
        tracker, types.new_class(name, bases, {"metaclass": _StructMeta, **options}, fill)
    )


def _post_init(self: Any) -> None:
    # msgspec looks for the method when the class is made; the user's own is set afterwards.
    type(self).__post_init__(self)


def _set_rest(cls: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> Any:
    return internals._class_setstate(cls, state)
