"""The sending end of a link in a batch job: from records to rows that Spark's shuffle sorts.

Keyed records wait until there are many; then those with one key, and one timestamp, become one row. So Spark sorts
fewer and larger rows the more often keys repeat, and a key's records stay in their order. Records without a key go
out in rows of some hundred, as they come. Watermarks are not passed on: a batch job has none but the last.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from itertools import repeat
from typing import Any

from moorline.errors import InvalidKey
from moorline.model import keys
from moorline.model.graph import Link, Operator, Partitioning, Plan
from moorline.model.ids import SubtaskId
from moorline.model.key_groups import owner
from moorline.model.keys.identity import KeyIdentities
from moorline.model.times import MIN_TIME
from moorline.model.wire import elements
from moorline.protocol.lowering import relay_slot
from moorline.subtask.batch import rows as batch_rows
from moorline.subtask.batch.column_link import ColumnLink
from moorline.subtask.batch.rows import BROADCAST, PASS_ON, REGULAR, RESULT, BatchRows, keyed_rank
from moorline.subtask.columns.eligible import works_by_key_group
from moorline.subtask.operators.base import Target, user_code_failed

#: Keyed records are gathered until there are so many, or about so many bytes of them. A row costs more than a record,
#: so rows of several records are worth some memory: with 100,000 keys these make 10 to a row, a quarter of them 2.6.
GATHERED_RECORDS = 1 << 20
GATHERED_BYTES = 16 << 20
#: Records without a key go out when there are about so many bytes of them.
PART_BYTES = 64 << 10
PART_RECORDS = 4096
#: How many keys are remembered with their encoding.
KNOWN_KEYS = 1 << 17


class BatchOutput:
    """Everything a subtask of a batch job sends. ``index`` tells it from the others of its vertex."""

    def __init__(self, plan: Plan, subtask: SubtaskId) -> None:
        self._plan = plan
        self._sender = subtask.index
        vertex = plan.vertices[subtask.vertex]
        self._stage = vertex.stage
        # A DataFrame that is read may have more partitions than its source has subtasks.
        self._here = vertex.first_slot + subtask.index % vertex.parallelism
        self.rows = BatchRows()
        self._links: list[_Link | ColumnLink] = []
        self._results = 0

    def link_to(self, plan: Plan, link: Link, sender: SubtaskId) -> Target:
        target = plan.vertices[link.target]
        receivers = list(range(target.parallelism))
        if link.partitioning is Partitioning.FORWARD:
            receivers = [sender.index % target.parallelism]
        made: _Link | ColumnLink
        places = [self._way(target.stage, target.first_slot + receiver) for receiver in receivers]
        if link.partitioning is Partitioning.HASH:
            root = plan.graph.by_uid[target.operators[0]]
            kind = ColumnLink if works_by_key_group(root) else _KeyedLink
            made = kind(self.rows, link.id, sender.index, places, root, link.input, plan.graph.max_parallelism)
        else:
            made = _PlainLink(self.rows, link.id, sender.index, places, link.partitioning)
        self._links.append(made)
        return made

    def _way(self, stage: int, slot: int) -> tuple[int, int, bool]:
        """The slot of the next stage, the place, and whether that is where it goes."""
        if stage == self._stage + 1:
            return slot, batch_rows.place(stage, slot), True
        return relay_slot(self._here, slot, self._width()), batch_rows.place(stage, slot), False

    def _width(self) -> int:
        """The number of slots of the next stage; after the last there is one way out."""
        widths = self._plan.widths
        return widths[self._stage + 1] if self._stage + 1 < len(widths) else 1

    def pass_on(self, place: int, rank: int, key: bytes, time: int, seq: int, payload: bytes) -> None:
        """A row for a later stage, or for the driver."""
        stage, slot = place >> 16, place & 0xFFFF
        next_slot, _, arrives = self._way(stage, slot)
        if arrives:
            link = self._plan.links[batch_rows.link_of(seq)]
            rank = _rank(link.partitioning) if not key else keyed_rank(key)
        self.rows.add(next_slot, place, rank, key, time, seq, payload)

    def result(self, kind: str, name: str, values: list[Any]) -> None:
        """Something for the driver: ``kind`` says what."""
        seq = batch_rows.first_seq(0, self._sender) + self._results
        self._results += 1
        slot = relay_slot(self._here, 0, self._width())
        self.rows.add(slot, RESULT, PASS_ON, b"", MIN_TIME, seq, elements.pickled((kind, name, values)))

    def flush(self) -> None:
        """Make rows of everything that waits."""
        for link in self._links:
            link.flush()


class _Link:
    """Takes batches, like an operator."""

    def __init__(self, rows: BatchRows, link: int, sender: int, places: list[tuple[int, int, bool]]) -> None:
        self._rows, self._places = rows, places
        self._seq = batch_rows.first_seq(link, sender)

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        raise NotImplementedError

    def watermark(self, time: int) -> None:
        """Not passed on: the receiver's time ends with its input."""

    def idle(self) -> None:
        """Nothing: no receiver waits."""

    def flush(self) -> None:
        raise NotImplementedError


class _PlainLink(_Link):
    """To one subtask, to all in turn or to all of them."""

    def __init__(
        self, rows: BatchRows, link: int, sender: int, places: list[tuple[int, int, bool]], partitioning: Partitioning
    ) -> None:
        super().__init__(rows, link, sender, places)
        self._rank, self._is_broadcast = _rank(partitioning), partitioning is Partitioning.BROADCAST
        #: Records and timestamps that wait: for all, or for each receiver.
        self._waiting: list[tuple[list[Any], list[int]]] = [
            ([], []) for _ in (places[:1] if self._is_broadcast else places)
        ]
        self._next = 0
        #: How many records make a row, going by the last one; the first is a guess.
        self._enough = 64

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        count = len(self._waiting)
        for number, (waiting, stamps) in enumerate(self._waiting):
            if waiting and bool(stamps) != bool(timestamps):
                self._send(number)  # records with and without timestamps do not share a row
            turn = slice((number - self._next) % count, None, count)
            waiting += records[turn]
            stamps += timestamps[turn] if timestamps else ()
            while len(waiting) >= self._enough:
                self._send(number)
        self._next = (self._next + len(records)) % count

    def flush(self) -> None:
        for number, (waiting, _) in enumerate(self._waiting):
            while waiting:
                self._send(number)

    def _send(self, number: int) -> None:
        waiting, stamps = self._waiting[number]
        count = min(len(waiting), self._enough)
        payload = batch_rows.pack(waiting[:count], stamps[:count])
        del waiting[:count], stamps[:count]
        self._enough = max(1, min(PART_BYTES * count // len(payload), PART_RECORDS))
        for slot, place, arrives in self._places if self._is_broadcast else self._places[number : number + 1]:
            self._rows.add(slot, place, self._rank if arrives else PASS_ON, b"", MIN_TIME, self._seq, payload)
        self._seq += 1


class _KeyedLink(_Link):
    """To the owner of each record's key group, gathered by key."""

    def __init__(
        self,
        rows: BatchRows,
        link: int,
        sender: int,
        places: list[tuple[int, int, bool]],
        operator: Operator,
        input: int,
        max_parallelism: int,
    ) -> None:
        super().__init__(rows, link, sender, places)
        self._operator, self._sender, self._max_parallelism = operator, sender, max_parallelism
        self._key_of: Callable[[Any], Any] = operator.inputs[input].key
        #: Records by key, or by key and timestamp.
        self._gathered: defaultdict[Any, list[Any]] = defaultdict(list)
        self._are_stamped = False
        self._count, self._enough = 0, 64
        self._identities = KeyIdentities(operator.uid)
        #: What a row of a key begins with: rank, encoding, place and slot.
        self._known: dict[Any, tuple[int, bytes, int, int]] = {}

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        if self._are_stamped != bool(timestamps):
            self.flush()
            self._are_stamped = bool(timestamps)
        iterator: Any = iter(records)
        try:
            batch_keys = list(map(self._key_of, iterator))
        except Exception as error:  # of the user's key selector
            at = len(records) - iterator.__length_hint__() - 1
            raise user_code_failed(self._operator, self._sender, error, -1, f"{records[at]!r:.500}") from error
        self._gather(records, timestamps, self._identities_of(batch_keys, records))
        self._count += len(records)
        if self._count >= self._enough:
            self.flush()

    def _identities_of(self, batch_keys: list[Any], records: list[Any]) -> list[Any]:
        """The identity of each record's key."""
        try:
            return self._identities.of_batch(batch_keys)
        except keys.NotAKey:
            for key, record in zip(batch_keys, records):
                try:
                    self._identities.of(key)
                except keys.NotAKey as error:
                    self._refuse(key, record, str(error))
            raise

    def _gather(self, records: list[Any], timestamps: list[int] | None, idents: list[Any]) -> None:
        gathered = self._gathered
        for ident, record in zip(zip(idents, timestamps) if timestamps else idents, records):
            gathered[ident].append(record)

    def flush(self) -> None:
        """Make a row of each key's records. Column by column: there may be a row for every few records."""
        gathered = self._gathered
        if not gathered:
            return
        times: Any = [MIN_TIME] * len(gathered)
        batch_keys: Any = gathered
        if self._are_stamped:
            batch_keys, times = zip(*gathered)
        payloads = _pickled(gathered.values())
        ranks, encoded, places, slots = zip(*self._heads(batch_keys))
        seqs = range(self._seq, self._seq + len(payloads))
        self._rows.add_many(slots, places, ranks, encoded, times, seqs, payloads)
        self._seq = seqs.stop
        gathered.clear()
        each = max(1, sum(map(len, payloads)) // self._count)
        self._enough = max(1, min(GATHERED_RECORDS, GATHERED_BYTES // each, 16 * self._enough))
        self._count = 0

    def _heads(self, batch_keys: Iterable[Any]) -> list[tuple[int, bytes, int, int]]:
        """Rank, encoding, place and slot of each key."""
        known = self._known
        heads = list(map(known.get, batch_keys))
        if None in heads:
            groups = zip(heads, batch_keys, self._gathered.values())
            heads = [head or self._know(key, records[0]) for head, key, records in groups]
        return heads  # type: ignore[return-value]

    def _know(self, key: Any, record: Any) -> tuple[int, bytes, int, int]:
        try:
            encoded = keys.encode(key)
        except keys.NotAKey as error:
            self._refuse(key, record, str(error))
        group = keys.encoded_key_group(encoded, self._max_parallelism)
        slot, place, arrives = self._places[owner(group, len(self._places), self._max_parallelism)]
        if len(self._known) >= KNOWN_KEYS:
            self._known.clear()
        self._known[key] = keyed_rank(encoded) if arrives else PASS_ON, encoded, place, slot
        return self._known[key]

    def _refuse(self, key: Any, record: Any, why: str) -> Any:
        raise InvalidKey(self._operator.uid, f"{key!r:.200}", f"{record!r:.500}", why) from None


def _rank(partitioning: Partitioning) -> int:
    return BROADCAST if partitioning is Partitioning.BROADCAST else REGULAR


def _pickled(groups: Collection[list[Any]]) -> list[bytes]:
    """The payload of each of many rows."""
    try:
        return list(map(pickle.dumps, groups, repeat(5)))
    except (pickle.PicklingError, AttributeError, TypeError):
        return list(map(elements.pickled, groups))
