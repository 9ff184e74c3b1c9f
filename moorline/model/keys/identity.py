"""Identities: the object that stands for a key in memory, equal to another exactly when their encodings are.

Dicts of state, caches and sets of keys compare keys as Python does. For most keys that is how their encodings compare
(``model/keys/encoding.py``), and they stand for themselves. For some it is not: two moments of a repeated hour are
equal in Python, an Enum member comes back from a snapshot without its class.

    key                                                           what stands for it
    int, bool, float, str, bytes, date, time, naive datetime,     the key itself
    datetime in UTC, UUID, Decimal, timedelta, tuples and
    frozensets of these
    NumPy scalar                                                  the number
    anything else: Enum, dataclass, datetime in another zone,     an :class:`ObjectKey`, which has the key at hand
    namedtuple, IntEnum, tuples of these
    one of these from a snapshot                                  what its encoding says; a ``ClassKey`` for Enum and
                                                                  dataclass

Every operator with a key has one :class:`KeyIdentities`. It makes them for whole batches, so that plain keys cost next
to nothing, and gives user code its own objects back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from enum import Enum
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np

from moorline.errors import KeyClassesClash, KeyClassUnknown, KeysChanged
from moorline.model import keys
from moorline.model.keys import ClassKey, Encoded
from moorline.model.keys.kinds import ANY, MOST_KINDS, clash, fits, kind_of, kinds_of_type
from moorline.model.keys.sample import KeySample
from moorline.model.value_kinds import NATIVE_TYPES, TYPES

#: Keys of exactly these types stand for themselves, whatever others there are.
PLAIN = NATIVE_TYPES
#: These too, also inside of tuples. A datetime does if its zone lets it.
_SIMPLE = TYPES - {datetime} | {NoneType}
_TUPLE = {tuple}


class ObjectKey(Encoded):
    """Stands for a key whose own equality is not that of its encoding."""

    __slots__ = ("_hash", "identity", "key")

    def __init__(self, encoded: bytes, key: Any) -> None:
        self.encoded, self.key = encoded, key
        #: What stands for it if it comes from a snapshot.
        self.identity = keys.decode_identity(encoded)
        self._hash = hash(self.identity)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self.encoded == other.encoded if isinstance(other, Encoded) else bool(self.identity == other)

    def __repr__(self) -> str:
        return repr(self.key)


def stands_for_itself(key: Any) -> bool:
    """Is the key itself as good as its encoding?

    >>> stands_for_itself(("a", None)), stands_for_itself(np.int64(1))
    (True, False)
    """
    kind = type(key)
    if kind in _SIMPLE:
        return True
    if kind is tuple or kind is frozenset:
        return _SIMPLE.issuperset(map(type, key)) or all(map(stands_for_itself, key))
    return kind is datetime and (key.tzinfo is None or key.tzinfo is UTC)


def compares_as_encoded(key: Any) -> bool:
    """May a dict that has this key be asked for others? For keys that can be encoded.

    >>> compares_as_encoded(datetime(2024, 1, 1)), compares_as_encoded((1, "a"))
    (True, True)
    """
    if stands_for_itself(key) or isinstance(key, Enum):
        return True
    if type(key) is tuple:
        return all(map(compares_as_encoded, key))
    if dataclasses.is_dataclass(key):
        return all(compares_as_encoded(getattr(key, f.name)) for f in dataclasses.fields(key) if f.compare)
    return False


class KeyIdentities:
    """The identities of one operator's keys.

    >>> identities = KeyIdentities("count")
    >>> identities.of_batch([1, "a"]), identities.of(np.int64(1))
    ([1, 'a'], 1)

    ``key_type`` is the declared type of the keys: with it, keys of the job's own classes can be made from a snapshot
    before a record has shown the class.
    """

    def __init__(self, uid: str, key_type: Any = None) -> None:
        self._uid = uid
        #: The Enum and dataclass types of the keys, by the name that stands in an encoding.
        self.classes = keys.key_classes(key_type)
        self._members: dict[Enum, ObjectKey] = {}
        #: The kinds of keys that have come, and those of restored state (``model/keys/kinds.py``).
        self.kinds: set[str] = set()
        #: Of which kinds the first key must be: those of restored state and the declared ones. None: of any.
        self._expected: list[str] | None = None
        self._key_type, self._seen = key_type, set[type]()
        #: Which of the keys get the most records.
        self.sample = KeySample()

    def expect(self, kinds: Collection[str]) -> None:
        """Take note of restored state under keys of these kinds. Empty: they are not known."""
        if kinds:
            self.kinds.update(kinds)
            declared = [] if self._key_type is None else kinds_of_type(self._key_type)
            self._expected = [*kinds] if clash(kinds, declared) else [*kinds, *declared]

    def of_batch(self, batch: list[Any]) -> list[Any]:
        """The identity of each of these keys. A list of plain keys is given back as it is."""
        types = set(map(type, batch))
        if not types <= self._seen:
            self._look_at(types - self._seen, batch)
        if types <= PLAIN or (types == _TUPLE and _SIMPLE.issuperset(map(type, chain.from_iterable(batch)))):
            return batch
        return [self.of(key) for key in batch]

    def _look_at(self, types: set[type], batch: list[Any]) -> None:
        """Take note of the kinds of keys. The first batch shows whether they are those of the restored state."""
        some = [next(key for key in batch if type(key) is kind) for kind in types]
        kinds = [kind_of(keys.encode(key)) for key in some]
        if self._expected is not None and not any(fits(kind, self._expected) for kind in kinds):
            raise KeysChanged(self._uid, tuple(sorted(self.kinds)), kinds[0], f"{some[0]!r:.200}")
        self._expected = None
        self.kinds.update(kinds)
        self._seen |= types & PLAIN
        if len(self.kinds) > MOST_KINDS:
            self.kinds = {ANY}

    def of(self, key: Any) -> Any:
        """The identity of a key. Raises ``keys.NotAKey``."""
        if key is None:
            keys.encode(key)  # says why not
        if stands_for_itself(key) or isinstance(key, Encoded):
            return key
        if isinstance(key, Enum):
            known = self._members.get(key)
            if known is None:
                known = self._members[key] = self._object(key)
            return known
        if isinstance(key, np.generic) and isinstance(key, (np.integer, np.floating, np.bool_)):
            return keys.decode_identity(keys.encode(key))
        return self._object(key)

    def _object(self, key: Any) -> ObjectKey:
        encoded = keys.encode(key)
        self._learn(key)
        return ObjectKey(encoded, key)

    def shown(self, identity: Any) -> Any:
        """The key as user code knows it. Raises :class:`KeyClassUnknown` if no record has shown its class yet."""
        if type(identity) in PLAIN:
            return identity
        if isinstance(identity, ObjectKey):
            return identity.key
        return identity if stands_for_itself(identity) else self.made_from(keys.encode(identity))

    def made_from(self, encoded: bytes) -> Any:
        """The key behind an encoding, as user code knows it. Raises :class:`KeyClassUnknown`."""
        try:
            return keys.decode(encoded, self.classes)
        except keys.UnknownClass as unknown:
            raise KeyClassUnknown(str(unknown)) from None

    def _learn(self, key: Any) -> None:
        """Take note of the classes of a key."""
        if isinstance(key, (tuple, frozenset)):
            self._learn_all(key)
        elif isinstance(key, Enum):
            self._note(type(key))
        elif dataclasses.is_dataclass(key):
            self._note(type(key))
            self._learn_all(getattr(key, field.name) for field in dataclasses.fields(key))

    def _learn_all(self, parts: Iterable[Any]) -> None:
        for part in parts:
            if type(part) not in PLAIN:
                self._learn(part)

    def _note(self, kind: type) -> None:
        known = self.classes.get(kind.__qualname__)
        if known is not None and known.__module__ != kind.__module__:
            # A snapshot could not tell their members apart.
            raise KeyClassesClash(self._uid, kind.__qualname__, known.__module__, kind.__module__)
        self.classes[kind.__qualname__] = kind


__all__ = ["ClassKey", "KeyIdentities", "ObjectKey", "compares_as_encoded", "stands_for_itself"]
