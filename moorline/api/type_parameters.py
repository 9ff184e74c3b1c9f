"""The type parameters of the public classes.

Each defaults to ``Any``: a class that is used bare (``class Count(mo.KeyedProcessFunction)``, ``stream: mo.Stream``)
is one of which nothing is known, and a type checker has nothing to complain about, in strict mode neither. Inputs are
contravariant and outputs covariant, so a function of numbers can be given a stream of whole numbers.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar  # for ``default=``, which typing has from Python 3.13 on

#: A record, value or element that goes both ways.
T = TypeVar("T", default=Any)
#: The records of a stream or source.
T_co = TypeVar("T_co", covariant=True, default=Any)
#: The records of the second of two streams.
T2_co = TypeVar("T2_co", covariant=True, default=Any)
#: The records a sink takes.
T_contra = TypeVar("T_contra", contravariant=True, default=Any)
#: What the next stream carries.
U = TypeVar("U", default=Any)
#: A key of a map.
K = TypeVar("K", default=Any)
#: The key of a keyed stream, as a stream has it and as a function takes it.
K_co = TypeVar("K_co", covariant=True, default=Any)
K_contra = TypeVar("K_contra", contravariant=True, default=Any)
#: A value of a map.
V = TypeVar("V", default=Any)
#: What a declaration or a call is given, without a default: then it is inferred.
A = TypeVar("A")
B = TypeVar("B")
#: Records that go into a function, of one input or of each of two.
IN = TypeVar("IN", contravariant=True, default=Any)
IN1 = TypeVar("IN1", contravariant=True, default=Any)
IN2 = TypeVar("IN2", contravariant=True, default=Any)
#: An accumulator.
ACC = TypeVar("ACC", default=Any)
#: Records that come out of a function.
OUT = TypeVar("OUT", covariant=True, default=Any)
#: A window, as a function takes it and as an assigner makes it.
W = TypeVar("W", contravariant=True, default=Any)
W_co = TypeVar("W_co", covariant=True, default=Any)
