"""Functions that provably keep nothing: no call can reach an object of the call before.

Such a function cannot change what it has returned, so its results need no look. It is one without a closure, without
defaults that can change, and without any global name but harmless builtins, constants and other such functions: most
lambdas of ``map`` and ``filter`` are.
"""

from __future__ import annotations

import builtins
import dis
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any

from moorline.model.copying.immutable import are_immutable

#: Builtins that give user code nothing to keep anything in.
_HARMLESS = frozenset(
    {
        *("abs", "all", "any", "bin", "bool", "bytes", "chr", "complex", "dict", "divmod", "enumerate", "filter"),
        *("float", "format", "frozenset", "hash", "hex", "int", "isinstance", "issubclass", "iter", "len", "list"),
        *("map", "max", "min", "next", "oct", "ord", "pow", "range", "repr", "reversed", "round", "set", "slice"),
        *("sorted", "str", "sum", "tuple", "zip", "IndexError", "KeyError", "TypeError", "ValueError"),
    }
)
_TYPES = frozenset((bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple))
_CONSTANTS = frozenset((bool, bytes, complex, float, int, str, type(None)))
_GENERATORS = 0x20 | 0x80 | 0x200  # generator, coroutine and asynchronous generator


def keeps_nothing(function: Any) -> bool:
    """Is there no way for a call to reach what an earlier one has returned or been given?

    >>> seen = []
    >>> keeps_nothing(lambda r: {**r, "size": len(r)}), keeps_nothing(lambda r: seen), keeps_nothing(str.lower)
    (True, False, True)
    """
    if isinstance(function, type):
        return function in _TYPES
    if isinstance(function, MethodDescriptorType):
        return function.__objclass__ in _TYPES
    if isinstance(function, BuiltinFunctionType):
        return isinstance(function.__self__, ModuleType) and function.__self__ is builtins
    return isinstance(function, FunctionType) and _is_closed(function, set())


def _is_closed(function: FunctionType, seen: set[FunctionType]) -> bool:
    if function in seen:
        return True
    seen.add(function)
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    if function.__closure__ or vars(function) or not are_immutable(defaults):
        return False
    return _refers_to_nothing(function.__code__, function.__globals__, seen)


def _refers_to_nothing(code: CodeType, names: dict[str, Any], seen: set[FunctionType]) -> bool:
    if code.co_flags & _GENERATORS and code.co_name != "<genexpr>":
        return False
    for instruction in dis.get_instructions(code):
        opname, name = instruction.opname, instruction.argval
        if opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            if name not in names:
                is_harmless = name in _HARMLESS
            else:
                value = names[name]
                is_function = isinstance(value, FunctionType) and _is_closed(value, seen)
                is_harmless = is_function or type(value) in _CONSTANTS
            if not is_harmless:
                return False
        elif "GLOBAL" in opname or "IMPORT" in opname or opname == "STORE_NAME":
            return False
    return all(_refers_to_nothing(inner, names, seen) for inner in code.co_consts if isinstance(inner, CodeType))
