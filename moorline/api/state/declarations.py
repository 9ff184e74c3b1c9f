"""Are the states of a function declared where they are found, once each, and never assigned to?

Asked when a job is built.

A state is declared on the class, or asked for in ``open``. One that is made in ``__init__`` belongs to no operator,
and an assignment to a declared one (``self.count = 5``, ``self.count += 1``) puts a number in the place of the state,
which no snapshot ever sees. Assignments are found in the methods' code, without running it.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import FunctionType

from moorline.api.state.states import State, ValueState, declared_states
from moorline.errors import StateMisused


def check_states(function: object, where: str) -> None:
    """Raises :class:`StateMisused`. ``where``: which operator it is."""
    for attribute, value in getattr(function, "__dict__", {}).items():
        if isinstance(value, State):
            kind = type(value).__name__
            advice = f"Declare it on the class ({attribute} = mo.{kind}(...)), or ask for it in open()."
            raise StateMisused(where, attribute, "was made in __init__, where no operator finds it", advice)
    named: dict[str, tuple[str, State]] = {}
    for attribute, declared in declared_states(function).items():
        other, same = named.setdefault(declared.descriptor.name, (attribute, declared))
        if same is not declared:
            cause = f"and {other!r} have the same name, {declared.descriptor.name!r}: they would be one state"
            raise StateMisused(where, attribute, cause, "Give each its own name.")
        for method in _methods(type(function)):
            if attribute in _assigned(method):
                change = f"self.{attribute}.update(...)" if isinstance(declared, ValueState) else "the state's methods"
                cause = f"is overwritten by an assignment to self.{attribute} in {method.__qualname__}"
                raise StateMisused(where, attribute, cause, f"Change what is in it with {change}.")


def _methods(cls: type) -> Iterator[FunctionType]:
    for base in cls.__mro__:
        if not base.__module__.startswith("moorline."):
            yield from (member for member in vars(base).values() if isinstance(member, FunctionType))


def _assigned(method: FunctionType) -> set[str]:
    """The attributes of ``self`` that a method assigns to: ``self.a = …``, and ``self.a += …``."""
    this = method.__code__.co_varnames[:1] if method.__code__.co_argcount else ()
    code = list(dis.get_instructions(method))
    attributes: set[str] = set()
    for at, instruction in enumerate(code):
        if instruction.opname == "STORE_ATTR" and at:
            loaded = code[at - 1]
            if loaded.opname == "SWAP":  # of an assignment with an operator: the object was loaded, and copied, before
                read = [
                    n for n in range(2, at) if (code[n].opname, code[n].argval) == ("LOAD_ATTR", instruction.argval)
                ]
                loaded = code[read[-1] - 2] if read and code[read[-1] - 1].opname == "COPY" else loaded
            # Newer versions of Python load two names at once; the object is the second.
            names = loaded.argval if isinstance(loaded.argval, tuple) else (loaded.argval,)
            if loaded.opname.startswith("LOAD_FAST") and names[-1:] == this:
                attributes.add(instruction.argval)
    return attributes
