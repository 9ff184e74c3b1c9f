"""A cursor over a type name: the few moves that its grammars (``type_names``, ``arrow_names``) are made of."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

_decoder = json.JSONDecoder()


class Scanner:
    """A text and how far it has been read. Every disappointment is a ``ValueError`` that shows the place."""

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
        found = pattern.match(self._text, self.at)
        if found is None:
            self.fail(f"{what} is missing")
        self.at = found.end()
        return found.group()

    def json(self) -> Any:
        """The next JSON value."""
        try:
            value, self.at = _decoder.raw_decode(self._text, self.at)
        except (ValueError, RecursionError):
            self.fail("JSON is missing")
        return value

    def text(self) -> str:
        """The next JSON text."""
        found = self.json()
        if not isinstance(found, str):
            self.fail("a text is missing")
        return found

    def complete(self, found: T) -> T:
        """``found``, if nothing is left."""
        if self.at != len(self._text):
            self.fail("it goes on")
        return found

    def fail(self, why: str) -> NoReturn:
        raise ValueError(f"{self._text[:200]!r} is not {self._what}: {why} at character {self.at}")
