"""Functions that are written for one type: the text of a function, and the things it works with.

A value with parts is taken apart and put together once per access, and a loop over its parts with a call for each
costs more than the work itself. So a type writes out what is to be done with each part (``state/types/composite.py``),
for values of exactly the declared classes; all others, and all errors, are left to the plain methods of the type,
``lower`` and ``lift``, which say what does not fit.

**Nothing but the shape of a type gets into the text.** A type may come from a manifest, and whoever wrote that must
not write code of ours: the text is put together from words of this package and from numbers, parts are known by their
place, and every class, function, name and limit is a constant, ``c0``, ``c1`` ..., that is handed over as an object.
The text sees no builtins. It is compiled once for each shape, however many types have it (docs/decisions/0039).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any

#: A type of more parts than this is not worth a function as long as itself.
MOST_PARTS = 200


class GeneratedSource:
    """The text of one function of one argument, ``v``, and the constants in it.

    >>> source = GeneratedSource()
    >>> double = source.function(f"return v * {source.constant(2)}")
    >>> double(21)
    42
    """

    def __init__(self) -> None:
        self._constants: dict[str, Any] = {"__builtins__": {}}
        self._names: dict[int, str] = {}
        self._parts = 0

    def constant(self, thing: Any) -> str:
        """The name by which the text refers to a thing."""
        if id(thing) not in self._names:  # it is kept below, so the id stays its own
            name = self._names[id(thing)] = f"c{len(self._names)}"
            self._constants[name] = thing
        return self._names[id(thing)]

    def parts(self, count: int) -> list[str]:
        """New variables."""
        first, self._parts = self._parts, self._parts + count
        return [f"p{n}" for n in range(first, first + count)]

    def function(self, *lines: str) -> Callable[[Any], Any]:
        """The function with these lines as its body."""
        text = "def function(v):\n" + "".join(f"    {line}\n" for line in lines)
        exec(_compiled(text), self._constants)
        made: Callable[[Any], Any] = self._constants["function"]
        return made


@lru_cache(maxsize=1000)
def _compiled(text: str) -> CodeType:
    return compile(text, "<generated for a stored type>", "exec")


def is_of(source: GeneratedSource, variable: str, kind: type) -> str:
    """The text of the question whether a variable is of exactly one class."""
    return f"{source.constant(type)}({variable}) is {source.constant(kind)}"
