"""Records that a source cannot decode: fail, skip them, or send them to a side output. Always counted, never silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from moorline.api.functions.base import OutputTag
from moorline.api.sources import SourceContext
from moorline.connectors.files.identity import shown
from moorline.errors import InvalidArgument, UnreadableRecord

OnError = Literal["fail", "skip"] | OutputTag

#: What they are counted as.
COUNTER = "broken_records"


@dataclass(frozen=True)
class BrokenRecord:
    """A record that could not be decoded, as it comes out of a side output.

    >>> BrokenRecord("/data/a.jsonl", 120, b"{oops", "the line at byte 120 is not JSON").position
    120
    """

    #: The file, the topic and partition, the stream.
    origin: str
    #: The byte at which it begins in a file, or the row; the offset or number in a stream.
    position: int | str
    #: Its bytes as they stand there; nothing of a file that is stored by columns.
    content: bytes
    cause: str
    #: What else comes with it, such as key and headers.
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The origin, by the name that it has for files."""
        return self.origin


def checked_on_error(on_error: Any) -> OnError:
    if isinstance(on_error, OutputTag) or on_error in ("fail", "skip"):
        return on_error  # type: ignore[no-any-return]
    raise InvalidArgument("on_error", on_error, "It is 'fail', 'skip', or an OutputTag for a side output.")


class BrokenRecords:
    """The treatment of broken records, in one reader."""

    def __init__(self, on_error: OnError, ctx: SourceContext) -> None:
        self._on_error, self._ctx = on_error, ctx
        self._waiting: list[BrokenRecord] = []

    @property
    def fails(self) -> bool:
        return self._on_error == "fail"

    def add(
        self,
        origin: str,
        position: int | str,
        content: bytes,
        cause: str,
        count: int = 1,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """A record is broken: raise, or count it and go on."""
        origin = shown(origin)
        if self.fails:
            raise UnreadableRecord(origin, "read", cause, position=position)
        counters = self._ctx.counters
        if COUNTER not in counters:
            self._ctx.notice(COUNTER, f"passes over records that cannot be read, the first in {origin}: {cause}")
        counters[COUNTER] = counters.get(COUNTER, 0) + count
        if isinstance(self._on_error, OutputTag):
            self._waiting.append(BrokenRecord(origin, position, content, cause, details or {}))

    def take(self) -> dict[str, list[Any]]:
        """The records that go to the side output now."""
        if not self._waiting or not isinstance(self._on_error, OutputTag):
            return {}
        taken, self._waiting = self._waiting, []
        return {self._on_error.name: taken}
