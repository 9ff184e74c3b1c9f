"""The replication slot: may we read it, and from where?

The server keeps its log from the slot's confirmed LSN on. It moves a start before that silently forward, so a position
that lies before it is refused here, by name: what is between them is lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import psycopg

from moorline.connectors.postgres.changes.position import lsn_number, lsn_text
from moorline.connectors.postgres.connection import Connection
from moorline.errors import InvalidArgument, StorageError

_SLOT = """
SELECT s.confirmed_flush_lsn::text, s.plugin, s.database, current_database(), s.wal_status, s.active_pid,
    a.application_name
FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid WHERE s.slot_name = %s"""

#: As the server lists our connections to the slot: the number of the attempt, and the source's uid.
_READER = re.compile(r"moorline changes (\d+) (.*)", re.DOTALL)


@dataclass(frozen=True)
class SlotState:
    """A slot as the server has it."""

    confirmed: int
    #: The process that reads it, and what it calls itself.
    reader: int | None
    reader_name: str


def find_slot(connection: Connection, name: str, where: str) -> SlotState | None:
    """The slot; None if there is none. Raises if it is not one that we can read."""
    row = connection.execute(_SLOT, (name,)).fetchone()
    if row is None:
        return None
    confirmed, plugin, database, own, status, reader, reader_name = row
    if plugin != "pgoutput" or database != own:
        purpose = plugin or "physical replication"
        advice = f"There is a slot of that name for {purpose} of database {database}. Take another."
        raise InvalidArgument("slot", name, advice)
    if status == "lost":
        cause = f"the server has thrown away log that slot {name} still needed (max_slot_wal_keep_size)"
        raise StorageError(where, "read the changes of", f"{cause}. {_advice(name)}", can_pass=False)
    return SlotState(lsn_number(confirmed), reader, reader_name or "")


def create_slot(connection: Connection, name: str) -> None:
    """Make the slot. The server waits until transactions that are running now have ended."""
    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))


def reader_name(attempt: int, uid: str) -> str:
    """The name of a connection that reads the log."""
    return f"changes {attempt} {uid}"


def free_from_older_attempt(connection: Connection, slot: SlotState, attempt: int, uid: str) -> None:
    """End the connection of an earlier attempt of this source, which may be half dead and hold the slot for ever."""
    named = _READER.fullmatch(slot.reader_name)
    if slot.reader is None or named is None or int(named[1]) >= attempt or not uid.startswith(named[2]):
        return
    try:
        connection.execute("SELECT pg_terminate_backend(%s)", (slot.reader,))
    except psycopg.errors.InsufficientPrivilege:
        return  # it is another role's, so it is not ours


def check_start(slot: SlotState | None, name: str, lsn: int, system: tuple[str, str], end: int, where: str) -> None:
    """Refuse to go on from a position that this server cannot go on from.

    ``system``: the cluster that the position is from, and this one. ``end``: where the server's log ends.
    """
    before, now = system
    if before != now:
        cause = f"the position is from the database cluster {before}, and this is {now}"
    elif slot is None:
        cause = f"slot {name} is gone, and with it the changes since {lsn_text(lsn)}"
    elif lsn < slot.confirmed:
        cause = (
            f"the position is {lsn_text(lsn)}, and slot {name} was confirmed up to {lsn_text(slot.confirmed)}: the "
            f"changes in {slot.confirmed - lsn} bytes of log between them are gone. A newer snapshot can be restored"
        )
    elif lsn > end:
        cause = (
            f"the position is {lsn_text(lsn)}, and the server's log ends at {lsn_text(end)}: it has gone back to a "
            "backup, or a standby that was behind has taken its place"
        )
    else:
        return
    raise StorageError(where, "go on with the changes of", f"{cause}. {_advice(name)}", can_pass=False)


def _advice(name: str) -> str:
    return (
        f"To begin anew, with a first load, drop the slot if it is there (SELECT pg_drop_replication_slot('{name}')), "
        "and start the job without its checkpoints"
    )
