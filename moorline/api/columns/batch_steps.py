"""Functions of whole batches without state: what they are given, and what is known of what they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from moorline.api.functions.calls import check_call
from moorline.errors import InvalidArgument

#: What the function of a step for whole batches is given.
Frames = Literal["arrow", "pandas", "polars"]
_FRAMES = ("arrow", "pandas", "polars")


class ArrowColumns(Protocol):
    """Columns that Arrow can take over: a record batch or table of PyArrow, a frame of pandas or polars."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


@dataclass(frozen=True)
class BatchFunction:
    """The user's function of a step for whole batches, what it is given, and what it returns if that is known."""

    function: Callable[[Any], Any]
    frames: str
    schema: pa.Schema | None = None
    #: The columns that it is given, if they are known.
    in_schema: pa.Schema | None = None


def batch_function(
    function: Any, frames: Any, schema: pa.Schema | None, in_schema: pa.Schema | None = None
) -> BatchFunction:
    """The function of a step, checked. Raises :class:`InvalidArgument`."""
    if not callable(function):
        raise InvalidArgument("function", function, "Give a function of a batch.")
    if frames not in _FRAMES:
        raise InvalidArgument("frames", frames, f"Give one of {', '.join(_FRAMES)}.")
    check_call("function", function, 1)
    return BatchFunction(function, frames, schema, in_schema)
