"""Functions of columns of texts."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from moorline.errors import InvalidArgument

if TYPE_CHECKING:
    from moorline.api.columns.expressions.expression import Expression


class TextFunctions:
    """``mo.col("url").str``. Patterns are constants."""

    __slots__ = ("_expression",)

    def __init__(self, expression: Expression) -> None:
        self._expression = expression

    def _with(self, function: str, name: str, *arguments: object, **options: object) -> Expression:
        shown = ", ".join(map(repr, arguments)).replace("{", "{{").replace("}", "}}")
        return self._expression._with(function, f"{{}}.str.{name}({shown})", **options)

    def upper(self) -> Expression:
        """In capitals."""
        return self._with("utf8_upper", "upper")

    def lower(self) -> Expression:
        """In small letters."""
        return self._with("utf8_lower", "lower")

    def length(self) -> Expression:
        """The number of characters."""
        return self._with("utf8_length", "length")

    def strip(self) -> Expression:
        """Without white space at both ends."""
        return self._with("utf8_trim_whitespace", "strip")

    def contains(self, text: str) -> Expression:
        """Does ``text`` stand in it?"""
        return self._with("match_substring", "contains", text, pattern=_text("contains", text))

    def starts_with(self, text: str) -> Expression:
        """Does it begin with ``text``?"""
        return self._with("starts_with", "starts_with", text, pattern=_text("starts_with", text))

    def ends_with(self, text: str) -> Expression:
        """Does it end with ``text``?"""
        return self._with("ends_with", "ends_with", text, pattern=_text("ends_with", text))

    def like(self, pattern: str) -> Expression:
        """SQL's LIKE: ``%`` stands for any text, ``_`` for one character."""
        return self._with("match_like", "like", pattern, pattern=_text("like", pattern))

    def matches(self, pattern: str) -> Expression:
        """Does a regular expression (RE2's) match somewhere in it?"""
        return self._with("match_substring_regex", "matches", pattern, pattern=_pattern("matches", pattern))

    def extract(self, pattern: str) -> Expression:
        """The match of the first group of a regular expression: ``extract("id=(?P<id>[0-9]+)")``. Groups have names."""
        return self._with("extract", "extract", pattern, pattern=_pattern("extract", pattern))

    def replace(self, text: str, by: str) -> Expression:
        """With ``by`` wherever ``text`` stands."""
        if not text:
            raise InvalidArgument("replace", text, 'Give the text to be replaced: replace("/", ".").')
        options = {"pattern": _text("replace", text), "replacement": _text("replace", by)}
        return self._with("replace_substring", "replace", text, by, **options)

    def slice(self, first: int, end: int | None = None) -> Expression:
        """The characters from ``first`` to before ``end``; from the end if they are negative."""
        return self._with("utf8_slice_codeunits", "slice", first, end, start=first, stop=end)

    def part(self, separator: str, number: int) -> Expression:
        """The part with this number, from 0, between separators; null if there are not so many."""
        if type(number) is not int or number < 0:
            raise InvalidArgument("part", number, "Parts have numbers from 0.")
        if not separator:
            raise InvalidArgument("part", separator, 'Give the text between the parts: part("/", 3).')
        return self._with("part", "part", separator, number, separator=_text("part", separator), number=number)


def _text(where: str, given: object) -> builtins.str:
    if not isinstance(given, str):
        raise InvalidArgument(where, given, "Give a text: only the column is computed.")
    return given


def _pattern(where: str, given: object) -> builtins.str:
    pattern = _text(where, given)
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowException as error:
        raise InvalidArgument(where, given, f"It is no regular expression of RE2: {error}") from None
    return pattern
