"""A rehearsal of a pickle with stand-ins: does it change anything that it has not made itself?

Naming an allowed class is not all that a hostile pickle can do with it. Four opcodes change the object on top of the
stack (BUILD sets attributes, SETITEMS, APPENDS and ADDITEMS fill it), and nothing in the format says that this object
was made by the pickle: ``BUILD`` on the class itself would rewrite the class for the whole process.

So a pickle is read twice, both times by the interpreter's own unpickler. First every name leads to a stand-in: calling
one gives an inert object that takes any state, and changing one is refused. Nothing of the user's is called in the
rehearsal, so a pickle is refused before any of it has run. The second reading does the same steps with the real names.

=====================  ==========================================  ==========
the pickle gets        from                                        may change
=====================  ==========================================  ==========
a class, a function,   its name (GLOBAL and its like, the writer's  no
anything with a name   stand-in for names of scripts)
a member of an Enum    calling the class: it was there before       no
any other object       calling what has a name                      yes
list, dict, set        their own opcodes                            yes
=====================  ==========================================  ==========

A class of which ``__new__`` hands out an object that others hold, other than an Enum, is not seen through.
"""

from __future__ import annotations

import copyreg
import pickletools
from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn


def stand_in(target: Any, name: str, refuse: Callable[[str], NoReturn]) -> Any:
    """The stand-in for a thing that has a name. ``refuse`` raises when a pickle changes it."""
    if not isinstance(target, type):
        return NamedGlobal(name, refuse)
    made = NamedGlobal(f"a member of {name}", refuse) if issubclass(target, Enum) else _INERT
    # A class, because NEWOBJ takes nothing else; and its own metaclass, because BUILD asks the class for __setstate__.
    return _NamedClass(target.__name__, (), {"__new__": lambda *_, **__: made, "_name": name, "_refuse": refuse})


def refers_by_number(data: bytes | memoryview) -> bool:
    """Does a pickle use the numbers of ``copyreg.add_extension``, which lead past every list of names?"""
    if not copyreg._inverted_registry:  # type: ignore[attr-defined]
        return False
    return any(opcode.name.startswith("EXT") for opcode, _, _ in pickletools.genops(bytes(data)))


class _Unchanged:
    """Refuses each of the four opcodes that change an object, at the first thing that they ask it for."""

    __slots__ = ()
    _name: str
    _refuse: Callable[[str], NoReturn]

    @property
    def __setstate__(self) -> NoReturn:
        self._refuse(self._name)

    @property
    def extend(self) -> NoReturn:
        self._refuse(self._name)

    @property
    def append(self) -> NoReturn:
        self._refuse(self._name)

    @property
    def add(self) -> NoReturn:
        self._refuse(self._name)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._refuse(self._name)


class NamedGlobal(_Unchanged):
    """Stands for a function, for a member of an Enum, for an object of a module."""

    def __init__(self, name: str, refuse: Callable[[str], NoReturn], call: Callable[..., Any] | None = None) -> None:
        self._name, self._refuse, self._call = name, refuse, call

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _INERT if self._call is None else self._call(*arguments, **named)


class _NamedClass(_Unchanged, type):
    """The class of stand-ins for classes."""

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        return cls.__new__(cls)  # type: ignore[call-overload]


class _Inert:
    """Stands for every object that a pickle makes. Takes all that a pickle does to it, and keeps nothing."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def extend(self, items: Any) -> None:
        pass

    def add(self, item: Any) -> None:
        pass


_INERT = _Inert()
