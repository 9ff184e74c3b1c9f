"""The first load beside the log, against a small database of its own: no gap and no double, whatever happens when.

The database here has what makes it hard: a transaction is in the log a moment before others can see it. Rows have
versions that count, so a change that is missing, doubled or too early shows at once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from thoroughness import examples

from moorline.connectors.postgres.changes.first_load import FirstLoad, PageSnapshot, Treatment
from moorline.connectors.postgres.changes.position import Load, Window

TABLES = ["a", "b"]
KEYS = 12


@dataclass
class Transaction:
    xid: int
    #: Table, key, and the version after it; None: it is gone.
    changes: list[tuple[str, int, int | None]]
    truncates: str | None = None
    lsn: int = 0
    is_visible: bool = False


@dataclass
class Database:
    chance: random.Random
    rows: dict[tuple[str, int], int] = field(default_factory=dict)
    log: list[Transaction] = field(default_factory=list)
    xid: int = 0xFFFFFFF0  # the numbers in the log are about to begin anew
    lsn: int = 100
    versions: dict[tuple[str, int], int] = field(default_factory=dict)

    def write(self) -> None:
        """A transaction on rows that no other one holds: it is in the log, and not visible yet."""
        hidden = [tx for tx in self.log if not tx.is_visible]
        held = {(table, key) for tx in hidden for table, key, _ in tx.changes}
        truncated = {tx.truncates for tx in hidden}
        self.xid += 1
        transaction = Transaction(self.xid, [])
        table = self.chance.choice(TABLES)
        if self.chance.random() < 0.03 and table not in truncated | {t for t, _ in held}:
            transaction.truncates = table
        else:
            places = [(t, k) for t in TABLES if t not in truncated for k in range(KEYS)]
            for place in self.chance.sample(places, min(3, len(places))):
                if place not in held:
                    gone = place in self.rows and self.chance.random() < 0.3
                    version = self.versions[place] = self.versions.get(place, 0) + 1
                    transaction.changes.append((*place, None if gone else version))
        self.lsn += self.chance.randrange(1, 5)
        transaction.lsn = self.lsn
        self.log.append(transaction)

    def show(self) -> None:
        """Some transaction becomes visible."""
        hidden = [tx for tx in self.log if not tx.is_visible]
        if hidden:
            transaction = self.chance.choice(hidden)
            transaction.is_visible = True
            if transaction.truncates:
                self.rows = {place: v for place, v in self.rows.items() if place[0] != transaction.truncates}
            for table, key, version in transaction.changes:
                if version is None:
                    self.rows.pop((table, key), None)
                else:
                    self.rows[table, key] = version

    def snapshot(self) -> str:
        hidden = [tx.xid for tx in self.log if not tx.is_visible]
        return f"{min(hidden, default=self.xid + 1)}:{self.xid + 1}:{','.join(map(str, hidden))}"

    def page(self, table: str, after: int | None, limit: int) -> list[tuple[int, int]]:
        rows = sorted((k, v) for (t, k), v in self.rows.items() if t == table and (after is None or k > after))
        return rows[:limit]


class Replica:
    """What a user makes of the changes. It is strict: each must fit what is there."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], int] = {}
        self.last: dict[tuple[str, int], int] = {}

    def copy(self) -> Replica:
        other = Replica()
        other.rows, other.last = dict(self.rows), dict(self.last)
        return other

    def read(self, place: tuple[str, int], version: int) -> None:
        assert place not in self.rows, f"{place} was read, and was there"
        assert version >= self.last.get(place, 0), f"{place} was read as it had been before"
        self.rows[place] = self.last[place] = version

    def change(self, place: tuple[str, int], version: int | None) -> None:
        if version is None:
            assert place in self.rows, f"{place} was deleted, and was not there"
            assert self.last[place] == self.rows.pop(place)
            self.last[place] += 1
            return
        before = self.last.get(place)
        assert before is None or version == before + 1, f"{place} went from {before} to {version}"
        self.rows[place] = self.last[place] = version

    def truncate(self, table: str) -> None:
        # The table is loaded anew, and rows that are gone by then are never seen.
        self.rows = {place: v for place, v in self.rows.items() if place[0] != table}
        self.last = {place: v for place, v in self.last.items() if place[0] != table}


class Follower:
    """Drives the load as ``follower.py`` does, and can be given up at any moment."""

    def __init__(self, database: Database, load: Load, place: int, replica: Replica) -> None:
        self.database, self.place, self.replica = database, place, replica
        self.load = FirstLoad(TABLES, load)

    def step(self) -> None:
        due = self.load.next_page()
        if due is not None:
            self.page(*due)
        elif self.place < len(self.database.log):
            self.transaction(self.database.log[self.place])
            self.place += 1
        else:
            self.load.log_reached(self.database.lsn + 1)

    def page(self, table: str, after: list[str] | None) -> None:
        limit = self.database.chance.randrange(1, 6)
        snapshot = self.database.snapshot()
        rows = self.database.page(table, None if after is None else int(after[0]), limit)
        self.database.lsn += 1
        if not self.load.page_read(snapshot, self.database.lsn):
            return
        # A crash may come between two rows: then the load goes on from there.
        cut = self.database.chance.random() < 0.2
        taken = rows[: self.database.chance.randrange(len(rows) + 1)] if cut else rows
        for key, version in taken:
            self.replica.read((table, key), version)
            self.load.row_out([str(key)])
        if not cut and len(rows) < limit:
            self.load.page_ended()
        if cut:
            self.load = FirstLoad(TABLES, self.load.state)

    def transaction(self, transaction: Transaction) -> None:
        load, xid = self.load, transaction.xid & 0xFFFFFFFF
        load.log_reached(transaction.lsn)
        load.begin(xid)
        if transaction.truncates and load.truncated(transaction.truncates):
            self.replica.truncate(transaction.truncates)
        for table, key, version in transaction.changes:
            match load.treatment(table):
                case Treatment.COMES_OUT:
                    self.replica.change((table, key), version)
                case Treatment.BY_KEY:
                    state = load.state
                    up_to_last = state.after is not None and key <= int(state.after[0])
                    start = None if state.window is None else state.window.start
                    if load.comes_out(xid, up_to_last, start is None or key > int(start[0])):
                        self.replica.change((table, key), version)
        load.log_reached(transaction.lsn + 1)


@pytest.mark.parametrize("first", range(0, examples(400), 40))
def test_the_replica_is_the_table_whatever_happens_when(first):
    for seed in range(first, first + 40):
        try:
            play(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def play(seed: int) -> None:
    chance = random.Random(seed)
    database = Database(chance)
    for _ in range(chance.randrange(40)):
        database.write()
        database.show()
    for _ in range(KEYS * 3):
        database.show()
    # What is visible before the slot is made is not in its log.
    first = len(database.log)
    follower = Follower(database, Load(), first, Replica())
    saved = Load(), first, Replica()
    for _ in range(chance.randrange(50, 200)):
        step = chance.random()
        if step < 0.3:
            database.write()
        elif step < 0.6:
            database.show()
        elif step < 0.95:
            follower.step()
        elif step < 0.98:
            saved = follower.load.state, follower.place, follower.replica.copy()
        else:
            state, place, replica = saved
            follower = Follower(database, state, place, replica.copy())
    while any(not tx.is_visible for tx in database.log):
        database.show()
    while not follower.load.is_complete or follower.place < len(database.log):
        follower.step()
    assert follower.replica.rows == database.rows


class TestTheMachine:
    def test_a_page_that_has_not_seen_what_was_passed_over_is_read_again(self):
        load = FirstLoad(["a"], Load(table="a", unseen=[7]))
        assert load.page_read("5:9:7", high=10) is False
        assert load.page_read("8:9:8", high=10) is True

    def test_a_load_that_is_complete_remembers_no_transactions(self):
        load = FirstLoad(["a"], Load(done=["a"]))
        load.begin(5)
        assert load.is_complete and load.state.unseen == [] and load.next_page() is None

    def test_a_table_that_is_added_later_is_loaded_while_the_others_come_out(self):
        load = FirstLoad(["a", "b"], Load(done=["a"]))
        assert load.next_page() == ("b", None)
        assert load.treatment("a") is Treatment.COMES_OUT and load.treatment("b") is Treatment.BY_KEY

    def test_a_table_that_is_not_wanted_any_more_is_left(self):
        window = Window(None, "5:5:", 10)
        load = FirstLoad(["a"], Load(table="b", after=["3"], window=window))
        assert load.next_page() == ("a", None)

    def test_a_table_that_is_truncated_is_loaded_from_its_beginning(self):
        load = FirstLoad(["a", "b"], Load(table="a", after=["3"], window=Window(None, "5:5:", 10)))
        assert load.truncated("a") is True
        assert load.next_page() == ("a", None)
        assert load.truncated("a") is False, "nothing of it was read since"
        assert load.truncated("b") is False, "it was not begun"

    @pytest.mark.parametrize("end", [5, (1 << 32) - 3, (1 << 32) + 2, (7 << 32) + 100])
    def test_numbers_of_transactions_begin_anew(self, end):
        seen = PageSnapshot.parse(f"{end - 2}:{end}:{end - 2}")
        assert [n for n in range(-4, 3) if seen.has((end + n) & 0xFFFFFFFF)] == [-4, -3, -1]
