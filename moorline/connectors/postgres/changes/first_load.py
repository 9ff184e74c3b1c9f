"""The first load of tables beside their log: which changes are in the rows that were read, and which are not.

A table is read in pages, in the order of its key. Each page is a statement with a snapshot of its own: it has seen
certain transactions and no others. In between the log is read on. So for a change of a row in the log:

    its key was not read yet            pass it over: the page that reads it will have seen it
    its page has seen the transaction   pass it over: the row was read with it
    its page has not                    it comes out, after the row

Which transactions a page has seen is known exactly, by their numbers. After the end of the page's *window*, a place in
the log that was written after the page was read, there are no more of those that it has seen. The next page comes then.
A transaction whose changes were passed over, because their keys were not read yet, must have been seen by the page that
reads them: a transaction may be in the log a moment before others can see it. If it was not, the page is read again.

Everything is in :class:`Load`, so a load goes on where it was after a crash: the rest of a page is read again, in a
snapshot of its own. A truncated table is loaded from its beginning, after the truncate has come out.

This file performs no I/O. ``follower.py`` drives it. Keys are compared by PostgreSQL, which knows their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from msgspec.structs import replace

from moorline.connectors.postgres.changes.position import Key, Load, Window


@dataclass(frozen=True)
class PageSnapshot:
    """The transactions that a page has seen: ``pg_current_snapshot()``.

    >>> seen = PageSnapshot.parse("750:755:751,753")
    >>> [xid for xid in range(748, 757) if seen.has(xid)]
    [748, 749, 750, 752, 754]
    """

    #: All before it were over.
    first_running: int
    #: This one and all after it had not begun.
    end: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> PageSnapshot:
        first, end, running = text.split(":")
        return cls(int(first), int(end), frozenset(map(int, running.split(",")) if running else ()))

    def has(self, xid: int) -> bool:
        """Has it seen a transaction? In the log its number has 32 bits, and here it goes on counting.

        >>> PageSnapshot.parse(f"{(3 << 32) + 5}:{(3 << 32) + 5}:").has(0xFFFFFFFF)
        True
        """
        whole = self.end - (self.end & 0xFFFFFFFF) + xid
        if whole - self.end > 1 << 31:
            whole -= 1 << 32
        elif self.end - whole > 1 << 31:
            whole += 1 << 32
        return whole < self.first_running or (whole < self.end and whole not in self.running)


class Treatment(Enum):
    """The treatment of the changes of a table, in one transaction."""

    COMES_OUT = "comes out"
    PASSED_OVER = "passed over"
    BY_KEY = "its key decides"


class FirstLoad:
    """The first load of some tables. :attr:`state` is all there is to know of it."""

    def __init__(self, tables: list[str], state: Load) -> None:
        self._tables = tables
        self.state = state
        if state.table is not None and state.table not in tables:
            # It is not wanted any more.
            self.state = Load(state.done, unseen=state.unseen)
        self._window = None if self.state.window is None else PageSnapshot.parse(self.state.window.snapshot)

    # --- pages -----------------------------------------------------------------------------------

    def next_page(self) -> tuple[str, Key | None] | None:
        """The table to read a page of, and the key after which it begins. None: not now, or all is loaded."""
        state = self.state
        if state.window is not None:
            return None
        if state.table is None:
            table = next((table for table in self._tables if table not in state.done), None)
            if table is None:
                return None
            self.state = Load(state.done, table, unseen=state.unseen)
        assert self.state.table is not None
        return self.state.table, self.state.after

    @property
    def is_complete(self) -> bool:
        return self.state.table is None and all(table in self.state.done for table in self._tables)

    def page_read(self, snapshot: str, high: int) -> bool:
        """A page was read, in this snapshot. False: it is too early, and has to be read again."""
        seen = PageSnapshot.parse(snapshot)
        if not all(seen.has(xid) for xid in self.state.unseen):
            return False
        self._window = seen
        self.state = replace(self.state, window=Window(self.state.after, snapshot, high), unseen=[])
        return True

    def row_out(self, key: Key) -> None:
        """A row of the page has come out."""
        self.state = replace(self.state, after=key)

    def page_ended(self) -> None:
        """It was the last page of the table."""
        self.state = replace(self.state, is_whole=True)

    # --- the log ---------------------------------------------------------------------------------

    def log_reached(self, lsn: int) -> None:
        """All transactions that end before ``lsn`` were read."""
        state = self.state
        if state.window is None or lsn < state.window.high:
            return
        self._window = None
        if state.is_whole:
            assert state.table is not None
            self.state = Load([*state.done, state.table], unseen=state.unseen)
        else:
            self.state = replace(state, window=None)

    def begin(self, xid: int) -> None:
        """A transaction is read. Pages to come must have seen it, because it may be passed over in part."""
        if self.is_complete or (self._window is not None and self._window.has(xid)) or xid in self.state.unseen:
            return
        self.state = replace(self.state, unseen=[*self.state.unseen, xid])

    def treatment(self, table: str) -> Treatment:
        """The treatment of a change of this table."""
        state = self.state
        if table == state.table:
            return Treatment.BY_KEY
        return Treatment.COMES_OUT if table in state.done else Treatment.PASSED_OVER

    def comes_out(self, xid: int, is_up_to_last: bool, is_after_start: bool) -> bool:
        """Does a change of the table that is being loaded come out?

        ``is_up_to_last``: its key is not after the last one that was read. ``is_after_start``: it is after the start of
        the window's page.
        """
        is_read = is_up_to_last or self.state.is_whole
        is_in_page = self._window is not None and is_after_start
        return is_read and not (is_in_page and self._window is not None and self._window.has(xid))

    def truncated(self, table: str) -> bool:
        """All rows of a table are gone. Does that come out? What is loaded of it is loaded anew."""
        state = self.state
        if table != state.table:
            return table in state.done
        has_rows = state.after is not None or state.is_whole
        self._window = None
        self.state = Load(state.done, table, unseen=state.unseen)
        return has_rows
