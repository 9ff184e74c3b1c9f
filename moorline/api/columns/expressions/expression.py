"""Expressions: what a column of a result is computed from."""

from __future__ import annotations

import builtins
from collections.abc import Iterable

import pyarrow as pa

from moorline.api import foreign_names
from moorline.api.columns.expressions.operators import Operators, node_of
from moorline.api.columns.expressions.texts import TextFunctions
from moorline.api.columns.expressions.times import TimeFunctions
from moorline.api.columns.expressions.tree import Call, Column, Constant, Node
from moorline.api.columns.schemas import TypeLike, type_of
from moorline.api.foreign_names import AnswersForeignNames
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options


@checks_options()
class Expression(Operators, AnswersForeignNames):
    """A column that is computed from others, for whole batches at a time. Begin one with :func:`mo.col <moorline.col>`.

    It takes ``+ - * / // %``, comparisons, ``&``, ``|`` and ``~``, and has the methods below; those for texts are under
    ``.str``, those for moments under ``.dt``. A null in gives a null out, unless it says otherwise. ``/`` gives a
    float; a whole number that leaves its type, and ``//`` or ``%`` by 0, fail the job.

    >>> import moorline as mo
    >>> print((mo.col("cents") / 100 > 5) & mo.col("country").is_in(["at", "de"]))
    ((cents / 100) > 5) & country.is_in(['at', 'de'])
    """

    _foreign_names = foreign_names.EXPRESSION

    def __repr__(self) -> builtins.str:
        return f"<Expression {self}>"

    def alias(self, name: builtins.str) -> Named:
        """The same under a name, for ``select`` without a keyword."""
        return Named(name, self)

    def cast(self, to: TypeLike) -> Expression:
        """The values as another type: Spark's name of one, or pyarrow's. A value that does not fit fails the job."""
        wanted = type_of(to)
        return self._with("cast", f"{{}}.cast({str(wanted)!r})", target_type=wanted)

    def is_null(self) -> Expression:
        """Is there no value?"""
        return self._with("is_null", "{}.is_null()")

    def is_not_null(self) -> Expression:
        """Is there a value?"""
        return self._with("is_valid", "{}.is_not_null()")

    def is_nan(self) -> Expression:
        """Is it a float that is no number?"""
        return self._with("is_nan", "{}.is_nan()")

    def is_in(self, values: Iterable[object]) -> Expression:
        """Is it one of these? Null is none of them."""
        if isinstance(values, (builtins.str, bytes, Operators)):
            raise InvalidArgument("is_in", values, 'Give a list of constants: is_in(["at", "de"]).')
        among = list(values)
        if any(value is None for value in among):
            raise InvalidArgument("is_in", among, "None is in nothing: use is_null().")
        try:
            array = pa.array(among)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument("is_in", among, f"These are no constants of one type: {error}") from None
        return self._with("is_in", f"{{}}.is_in({_escaped(among)})", among=array)

    def between(self, low: object, high: object) -> Expression:
        """From ``low`` to ``high``, both included."""
        within: Expression = (self >= low) & (self <= high)
        return within

    def fill_null(self, value: object) -> Expression:
        """``value`` where there is none: a constant or an expression."""
        return self._with("coalesce", "{}.fill_null({})", value)

    def abs(self) -> Expression:
        """Without its sign."""
        return self._with("abs_checked", "{}.abs()")

    def round(self, digits: int = 0) -> Expression:
        """Rounded to so many digits after the point, halves to the even one."""
        if type(digits) is not int:
            raise InvalidArgument("round", digits, "Give the number of digits after the point, below 0 for tens.")
        return self._with("round", f"{{}}.round({digits})", ndigits=digits, round_mode="half_to_even")

    def floor(self) -> Expression:
        """The next whole number below, in the same type."""
        return self._with("floor", "{}.floor()")

    def ceil(self) -> Expression:
        """The next whole number above, in the same type."""
        return self._with("ceil", "{}.ceil()")

    def as_timestamp_ms(self) -> Expression:
        """The moment, in UTC, of a whole number of milliseconds since 1970."""
        return self._with("timestamp_of_ms", "{}.as_timestamp_ms()")

    @property
    def str(self) -> TextFunctions:
        """Functions of texts."""
        return TextFunctions(self)

    @property
    def dt(self) -> TimeFunctions:
        """Functions of moments."""
        return TimeFunctions(self)


class Named:
    """An expression with a name: see :meth:`Expression.alias`."""

    __slots__ = ("expression", "name")

    def __init__(self, name: str, expression: Expression) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidArgument("alias", name, 'Give the name of the result: alias("euros").')
        self.name, self.expression = name, expression

    def __repr__(self) -> str:
        return f"<Expression {self.expression} as {self.name}>"


@checks_options()
def col(name: str) -> Expression:
    """A column of the stream, to compute others from.

    >>> import moorline as mo
    >>> orders = mo.Job("euros").source(mo.from_items([{"cents": 250}]), uid="orders").with_schema("cents bigint")
    >>> orders.with_columns(euros=mo.col("cents") / 100, uid="euros").schema.names
    ['cents', 'euros']
    """
    if not isinstance(name, str) or not name:
        raise InvalidArgument("col", name, 'Give the name of a column: mo.col("cents").')
    return Expression(Column(name))


@checks_options()
def lit(value: object, type: TypeLike | None = None) -> Expression:
    """A constant, the same in every row; with a type if it is not to be the usual one.

    >>> import moorline as mo
    >>> print(mo.lit(5) - mo.col("rank"))
    5 - rank
    """
    if type is None:
        return Expression(node_of(value))
    try:
        return Expression(Constant(pa.scalar(value, type_of(type))))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument("lit", value, str(error)) from None


@checks_options()
def coalesce(*values: object) -> Expression:
    """The first of several that is not null.

    >>> import moorline as mo
    >>> print(mo.coalesce(mo.col("nick"), mo.col("name"), "nobody"))
    coalesce(nick, name, 'nobody')
    """
    early = [value for value in values[:-1] if not isinstance(value, Operators)]
    if early and len(values) > 1:
        advice = "A constant is never null, so what comes after it would not count. Name columns with mo.col(...)."
        raise InvalidArgument("coalesce", early[0], advice)
    return _of_several("coalesce", "coalesce", values)


@checks_options()
def least(*values: object) -> Expression:
    """The least of several in each row; nulls are passed over.

    >>> import moorline as mo
    >>> print(mo.least(mo.col("cents"), 1000))
    least(cents, 1000)
    """
    return _of_several("least", "min_element_wise", values)


@checks_options()
def greatest(*values: object) -> Expression:
    """The greatest of several in each row; nulls are passed over.

    >>> import moorline as mo
    >>> print(mo.greatest(mo.col("cents"), 0))
    greatest(cents, 0)
    """
    return _of_several("greatest", "max_element_wise", values)


def _of_several(name: str, function: str, values: tuple[object, ...]) -> Expression:
    if len(values) < 2:
        raise InvalidArgument(name, values, "Give at least two columns or constants.")
    # PySpark takes texts for names of columns, and what is made of constants alone is the same in each row.
    if not any(isinstance(value, Operators) for value in values):
        advice = f'None of these is a column: {name}(mo.col("cents"), 0). A text is taken for itself, as any constant.'
        raise InvalidArgument(name, values, advice)
    nodes = tuple(map(node_of, values))
    return Expression(Call(function, nodes, f"{name}({', '.join(['{}'] * len(nodes))})"))


def _escaped(values: list[object]) -> str:
    return repr(values).replace("{", "{{").replace("}", "}}")


class When:
    """The beginning of a choice: a condition, and what holds if it does not."""

    def __init__(self, condition: object, before: tuple[tuple[Node, Node], ...] = ()) -> None:
        self._condition, self._before = node_of(condition), before

    def then(self, value: object) -> Then:
        """The value where the condition holds: a column or a constant."""
        return Then((*self._before, (self._condition, node_of(value))))


class Then:
    """Conditions with their values; what is left to say is the value where none of them holds."""

    def __init__(self, cases: tuple[tuple[Node, Node], ...]) -> None:
        self._cases = cases

    def when(self, condition: object) -> When:
        """The next condition, which is looked at where none before holds."""
        return When(condition, self._cases)

    def otherwise(self, value: object) -> Expression:
        """The value where no condition holds; None for null."""
        node: Node = Constant(pa.scalar(None)) if value is None else node_of(value)
        for condition, then in reversed(self._cases):
            node = Call("if_else", (condition, then, node), "when({}).then({}).otherwise({})")
        return Expression(node)


@checks_options()
def when(condition: object) -> When:
    """A choice by conditions. A condition that is null does not hold.

    >>> import moorline as mo
    >>> size = mo.when(mo.col("cents") > 1000).then("large").otherwise("small")
    >>> print(size)
    when((cents > 1000)).then('large').otherwise('small')
    """
    return When(condition)
