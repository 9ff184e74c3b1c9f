"""A cursor over the text of a type: the few moves that ``old_text.py`` and ``old_arrow_text.py`` are made of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

_decoder = json.JSONDecoder()


class Scanner:
    """A text and how far it has been read. Raises ``ValueError`` with the place where something else was expected."""

    def __init__(self, text: str, what: str) -> None:
        self._text, self._what, self.at = text, what, 0

    def peek(self) -> str:
        """The next character; nothing at the end."""
        return self._text[self.at : self.at + 1]

    def accept(self, wanted: str) -> bool:
        """Does ``wanted`` come next? If so it has been read."""
        if not self._text.startswith(wanted, self.at):
            return False
        self.at += len(wanted)
        return True

    def expect(self, wanted: str) -> None:
        if not self.accept(wanted):
            self.fail(f"{wanted!r} is missing")

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        match = pattern.match(self._text, self.at)
        if match is None:
            self.fail(f"{what} is missing")
        self.at = match.end()
        return match.group()

    def name(self, safe: re.Pattern[str], what: str) -> str:
        """The next name: as it is, or as JSON text."""
        return self.text() if self.peek() == '"' else self.match(safe, what)

    def fields(self, safe: re.Pattern[str], read: Callable[[], T], end: str) -> dict[str, T]:
        """``name: value, name: value`` and the end; each value by ``read``."""
        fields: dict[str, T] = {}
        while True:
            name = self.name(safe, "a field")
            self.expect(": ")
            if name in fields:
                self.fail(f"the field {name!r:.100} is there twice")
            fields[name] = read()
            if self.accept(end):
                return fields
            self.expect(", ")

    def json(self) -> Any:
        """The next JSON value."""
        try:
            value, self.at = _decoder.raw_decode(self._text, self.at)
        except (ValueError, RecursionError):
            self.fail("JSON is missing")
        return value

    def text(self) -> str:
        """The next JSON text."""
        value = self.json()
        if not isinstance(value, str):
            self.fail("a text is missing")
        return value

    def made(self, node: Callable[..., T], *fields: Any) -> T:
        """A node of these fields. Raises if there is none."""
        try:
            return node(*fields)
        except ValueError as error:
            self.fail(str(error))

    def finish(self) -> None:
        """Raises unless everything has been read."""
        if self.at != len(self._text):
            self.fail("it goes on")

    def fail(self, why: str) -> NoReturn:
        raise ValueError(f"{self._text[:200]!r} is not {self._what}: {why} at character {self.at}")
