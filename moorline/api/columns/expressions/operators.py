"""The meaning of Python's operators between expressions. Whatever else stands beside one is taken for a constant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from moorline.api.columns.expressions.tree import Call, Constant, Node
from moorline.errors import InvalidArgument

if TYPE_CHECKING:
    from moorline.api.columns.expressions.expression import Expression


class Operators:
    """The arithmetic, comparisons and logic of :class:`Expression`."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def _with(self, function: str, shown: str, *others: object, **options: Any) -> Expression:
        """The expression of a call of which this is the first argument."""
        return type(self)(Call(function, (self.node, *map(node_of, others)), shown, options))  # type: ignore[return-value]

    def _reversed(self, function: str, shown: str, other: object) -> Expression:
        return type(self)(Call(function, (node_of(other), self.node), shown))  # type: ignore[return-value]

    # Numbers. What leaves the type of a whole number fails the job.

    def __add__(self, other: object) -> Expression:
        return self._with("add", "({} + {})", other)

    def __radd__(self, other: object) -> Expression:
        return self._reversed("add", "({} + {})", other)

    def __sub__(self, other: object) -> Expression:
        return self._with("subtract_checked", "({} - {})", other)

    def __rsub__(self, other: object) -> Expression:
        return self._reversed("subtract_checked", "({} - {})", other)

    def __mul__(self, other: object) -> Expression:
        return self._with("multiply_checked", "({} * {})", other)

    def __rmul__(self, other: object) -> Expression:
        return self._reversed("multiply_checked", "({} * {})", other)

    def __truediv__(self, other: object) -> Expression:
        return self._with("true_divide", "({} / {})", other)

    def __rtruediv__(self, other: object) -> Expression:
        return self._reversed("true_divide", "({} / {})", other)

    def __floordiv__(self, other: object) -> Expression:
        return self._with("floor_divide", "({} // {})", other)

    def __mod__(self, other: object) -> Expression:
        return self._with("python_modulo", "({} % {})", other)

    def __neg__(self) -> Expression:
        return self._with("negate_checked", "-{}")

    # Comparisons: null where one of the two is.

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return self._with("equal", "({} == {})", _comparable(other))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return self._with("not_equal", "({} != {})", _comparable(other))

    def __lt__(self, other: object) -> Expression:
        return self._with("less", "({} < {})", _comparable(other))

    def __le__(self, other: object) -> Expression:
        return self._with("less_equal", "({} <= {})", _comparable(other))

    def __gt__(self, other: object) -> Expression:
        return self._with("greater", "({} > {})", _comparable(other))

    def __ge__(self, other: object) -> Expression:
        return self._with("greater_equal", "({} >= {})", _comparable(other))

    # Logic of three values: null is "not known".

    def __and__(self, other: object) -> Expression:
        return self._with("and_kleene", "({} & {})", other)

    def __or__(self, other: object) -> Expression:
        return self._with("or_kleene", "({} | {})", other)

    def __invert__(self) -> Expression:
        return self._with("invert", "~{}")

    __hash__ = None  # type: ignore[assignment]  # two of them are never "the same": == is an expression

    def __bool__(self) -> NoReturn:
        advice = "It has a value for each row. Write & for and, | for or, ~ for not, with brackets around comparisons."
        raise InvalidArgument("expression", str(self.node), advice)

    def __str__(self) -> str:
        shown = str(self.node)
        return shown[1:-1] if isinstance(self.node, Call) and self.node.shown.startswith("(") else shown


def _comparable(given: object) -> object:
    if isinstance(given, (float, np.floating)) and math.isnan(given):
        raise InvalidArgument("expression", given, "nan equals nothing, not even nan: use is_nan().")
    return given


def node_of(given: object) -> Node:
    """The tree of an expression, or a constant. Raises :class:`InvalidArgument`."""
    if isinstance(given, Operators):
        return given.node
    if hasattr(given, "otherwise"):
        raise InvalidArgument(
            "when", "a choice without an end", "Say what else: .otherwise(value), or .otherwise(None)."
        )
    if given is None:
        advice = 'A comparison with None is never true: use is_null(). For a constant null, mo.lit(None, "bigint").'
        raise InvalidArgument("expression", given, advice)
    try:
        return Constant(given if isinstance(given, pa.Scalar) else pa.scalar(given))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument("expression", given, f"It is no constant that Arrow knows: {error}") from None
