"""Whatever happens to a file in storage is noticed, told by name, and never read as data."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import xxhash
from storage_samples import JOB, manifest, snapshot

from moorline.errors import SnapshotCorrupt, StorageError
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import FORMAT, Claim, Manifest, Segment, SnapshotFile
from moorline.storage import entries
from moorline.storage.history import History
from moorline.storage.layout import entry_path
from moorline.storage.segments import read_elements, read_rows, verify
from moorline.storage.stores.memory import MemoryStore
from moorline.testing.contracts.store import HOSTILE_PATHS

ALL = KeyGroupRange(0, 128)


def replace(store: MemoryStore, path: str, data: bytes) -> None:
    store.delete([path])
    store.put(path, data)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# --- snapshot files ---------------------------------------------------------------------------

Damage = Callable[[MemoryStore, SnapshotFile, SnapshotFile], None]


def truncate(to: Callable[[int], int]) -> Damage:
    def damage(store: MemoryStore, file: SnapshotFile, sibling: SnapshotFile) -> None:
        replace(store, file.path, store.get(file.path)[: to(file.size)])

    return damage


def flip(segment: int, where: Callable[[Segment], int]) -> Damage:
    def damage(store: MemoryStore, file: SnapshotFile, sibling: SnapshotFile) -> None:
        found = file.segments[segment]
        replace(store, file.path, flipped(store.get(file.path), found.offset + where(found)))

    return damage


def remove(store: MemoryStore, file: SnapshotFile, sibling: SnapshotFile) -> None:
    store.delete([file.path])


def swap(store: MemoryStore, file: SnapshotFile, sibling: SnapshotFile) -> None:
    replace(store, file.path, store.get(sibling.path))


def older(store: MemoryStore, file: SnapshotFile, sibling: SnapshotFile) -> None:
    old = MemoryStore()
    for made in snapshot(old, 0, 1):
        if len(made.segments) == len(file.segments):
            replace(store, file.path, old.get(made.path))


def zeroes(store: MemoryStore, file: SnapshotFile, sibling: SnapshotFile) -> None:
    replace(store, file.path, bytes(file.size))


WAYS: dict[str, Damage] = {
    "truncated to nothing": truncate(lambda size: 0),
    "truncated to half": truncate(lambda size: size // 2),
    "truncated by a byte": truncate(lambda size: size - 1),
    "missing": remove,
    "swapped with a sibling": swap,
    "replaced by an older version": older,
    "overwritten with zeroes": zeroes,
}
PLACES = {"first": lambda s: 0, "middle": lambda s: s.size // 2, "last": lambda s: s.size - 1}
ROW_SEGMENTS, ELEMENT_SEGMENTS = 5, 2


def flips(segments: int) -> dict[str, Damage]:
    return {f"{name} byte of segment {i}": flip(i, at) for i in range(segments) for name, at in PLACES.items()}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("damage")


@pytest.mark.parametrize("way", [*WAYS, *flips(ROW_SEGMENTS)])
def test_damaged_rows_are_refused_by_name(store: MemoryStore, way: str) -> None:
    rows, elements = snapshot(store, 7, 1)
    assert len(rows.segments) == ROW_SEGMENTS
    read_rows(store, rows, ALL), verify(store, rows)
    (WAYS | flips(ROW_SEGMENTS))[way](store, rows, elements)
    for look in (lambda: read_rows(store, rows, ALL), lambda: verify(store, rows)):
        with pytest.raises((SnapshotCorrupt, StorageError)) as refused:
            look()
        assert rows.path in str(refused.value)


@pytest.mark.parametrize("way", [*WAYS, *flips(ELEMENT_SEGMENTS)])
def test_damaged_elements_are_refused_by_name(store: MemoryStore, way: str) -> None:
    rows, elements = snapshot(store, 7, 1)
    assert len(elements.segments) == ELEMENT_SEGMENTS
    read_elements(store, elements), verify(store, elements)
    (WAYS | flips(ELEMENT_SEGMENTS))[way](store, elements, rows)
    for look in (lambda: read_elements(store, elements), lambda: verify(store, elements)):
        with pytest.raises((SnapshotCorrupt, StorageError)) as refused:
            look()
        assert elements.path in str(refused.value)


def test_every_single_byte_of_a_file_is_covered(store: MemoryStore) -> None:
    _, elements = snapshot(store, 7, 1)
    whole = store.get(elements.path)
    for at in range(len(whole)):
        replace(store, elements.path, flipped(whole, at))
        with pytest.raises(SnapshotCorrupt, match="checksum"):
            read_elements(store, elements)


def test_damage_outside_of_the_range_does_not_stop_a_read_but_verify_finds_it(store: MemoryStore) -> None:
    rows, _ = snapshot(store, 7, 1)
    replace(store, rows.path, flipped(store.get(rows.path), 10))
    assert len(read_rows(store, rows, KeyGroupRange(4, 8))) == 40
    with pytest.raises(SnapshotCorrupt, match="checksum"):
        verify(store, rows)


def test_bytes_added_at_the_end_are_found_by_verify(store: MemoryStore) -> None:
    rows, _ = snapshot(store, 7, 1)
    replace(store, rows.path, store.get(rows.path) + b"x")
    with pytest.raises(SnapshotCorrupt, match="longer than"):
        verify(store, rows)


def edited(store: MemoryStore, file: SnapshotFile, edit: str) -> SnapshotFile:
    s = list(file.segments)

    def segment(like: Segment, offset: int, size: int) -> Segment:
        checksum = xxhash.xxh3_64_hexdigest(store.get_range(file.path, offset, size))
        return Segment(like.first, like.end, offset, size, checksum)

    match edit:
        case "gap":
            s[1] = msgspec.structs.replace(s[1], offset=s[1].offset + 1, size=s[1].size - 1)
        case "overlap":
            s[1] = msgspec.structs.replace(s[1], offset=s[1].offset - 1, size=s[1].size + 1)
        case "first byte left out":
            s[0] = msgspec.structs.replace(s[0], offset=4, size=s[0].size - 4)
        case "last segment left out":
            s.pop()
        case "no segments":
            s.clear()
        case "empty segment":
            s.insert(1, msgspec.structs.replace(s[1], size=0))
        case "negative size":
            s[0] = msgspec.structs.replace(s[0], size=-s[0].size)
        case "row group left out":
            s[1] = msgspec.structs.replace(s[1], size=s[1].size + s[2].size)
            s.pop(2)
        case "gap and overlap that cancel out":
            # The checksums fit, so only the gap itself can give it away.
            s[0] = segment(s[0], 0, s[0].size - 1)
            s[1] = segment(s[1], s[1].offset, s[1].size)
            s[2] = segment(s[2], s[2].offset - 1, s[2].size + 1)
        case "immense":
            s[-1] = msgspec.structs.replace(s[-1], size=1 << 60)
            return SnapshotFile(file.path, s[-1].offset + s[-1].size, s)
    return SnapshotFile(file.path, file.size, s)


@pytest.mark.parametrize(
    "edit",
    [
        "gap",
        "overlap",
        "first byte left out",
        "last segment left out",
        "no segments",
        "empty segment",
        "negative size",
        "row group left out",
        "gap and overlap that cancel out",
        "immense",
    ],
)
def test_segments_that_do_not_cover_the_file_are_refused(store: MemoryStore, edit: str) -> None:
    rows, _ = snapshot(store, 7, 1)
    for look in (read_rows, lambda s, f, _: verify(s, f)):
        with pytest.raises(SnapshotCorrupt) as refused:
            look(store, edited(store, rows, edit), ALL)
        assert refused.value.path == rows.path


def test_a_file_with_good_checksums_that_is_no_parquet_is_refused(store: MemoryStore) -> None:
    rows, _ = snapshot(store, 7, 1)
    rubbish = b"PAR1" + b"rubbish" * 20 + b"PAR1"
    store.put("data/chk-7/count/x-0-1-x.parquet", rubbish)
    segment = Segment(0, 0, 0, len(rubbish), xxhash.xxh3_64_hexdigest(rubbish))
    file = SnapshotFile("data/chk-7/count/x-0-1-x.parquet", len(rubbish), [segment])
    with pytest.raises(SnapshotCorrupt, match="Parquet cannot read it"):
        read_rows(store, file, ALL)
    with pytest.raises(SnapshotCorrupt, match="no element column"):
        read_elements(store, rows)


# --- entries of the history -------------------------------------------------------------------


def published(store: MemoryStore) -> History:
    history = History(store, JOB)
    history.claim(fresh=True, now_ms=1)
    history.publish(manifest(1, 1, snapshot(store, 1, 1)))
    history.publish(manifest(2, 1, snapshot(store, 2, 1)))
    return history


def test_every_byte_of_an_entry_matters_or_changes_nothing(store: MemoryStore) -> None:
    history = published(store)
    path = entry_path(3)
    whole, good = store.get(path), history.read()[2].entry
    unharmed = 0
    for at in range(len(whole)):
        replace(store, path, flipped(whole, at))
        record = history.read()[2]
        assert (record.entry is None) == (record.damage is not None)
        if record.entry is not None:
            # White space of the envelope, and who wrote it after what.
            assert record.entry == good
            unharmed += 1
    assert unharmed < 120


@pytest.mark.parametrize("keep", [0, 1, 100, -2, -3])
def test_a_truncated_entry_is_damaged_and_the_others_are_not(store: MemoryStore, keep: int) -> None:
    history = published(store)
    replace(store, entry_path(3), store.get(entry_path(3))[:keep])
    claim, first, second = history.read()
    assert isinstance(claim.entry, Claim) and isinstance(first.entry, Manifest)
    assert second.entry is None and second.damage and second.seq == 3 and second.path == entry_path(3)


def test_a_missing_entry_is_told_at_its_number(store: MemoryStore) -> None:
    published(store)
    store.delete([entry_path(2)])
    records = History(store, JOB).read()
    assert [(r.seq, r.is_missing) for r in records] == [(1, False), (2, True), (3, False)]
    assert records[1].damage == "it is missing, and number 3 names it"


def test_an_entry_swapped_for_that_of_another_job_is_damaged(store: MemoryStore) -> None:
    history, other = published(store), MemoryStore()
    History(other, "other").claim(fresh=True, now_ms=1)
    replace(store, entry_path(3), other.get(entry_path(1)))
    assert "job 'other'" in (history.read()[2].damage or "")


def test_an_entry_of_a_newer_format_is_told_as_such(store: MemoryStore) -> None:
    newer = msgspec.structs.replace(manifest(3, 1), format=FORMAT + 1)
    history = published(store)
    store.put(entry_path(4), entries.encode(newer, "newer", ""))
    assert f"format {FORMAT + 1}" in (history.read()[3].damage or "")


@pytest.mark.parametrize("path", HOSTILE_PATHS, ids=ascii)
def test_a_manifest_that_names_a_hostile_path_is_damaged_as_a_whole(store: MemoryStore, path: str) -> None:
    good = snapshot(store, 3, 1)
    bad = SnapshotFile(path, good[0].size, good[0].segments)
    history = published(store)
    store.put(entry_path(4), entries.encode(manifest(3, 1, [bad, good[1]]), "hostile", ""))
    record = history.read()[3]
    assert record.entry is None and "no file of ours" in (record.damage or "")
    with pytest.raises(SnapshotCorrupt):
        read_rows(store, bad, ALL)
    with pytest.raises(SnapshotCorrupt):
        history.discard([bad])


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b"{}",
        b"[" * 100_000,
        b'{"xxh3": "", "entry": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"xxh3": 1, "entry": {}}',
        b"\xff\xfe",
        b'{"xxh3": "\xff", "entry": {}}',
        bytes(1000),
    ],
    ids=["null", "empty", "deep", "deep entry", "number", "bom", "not utf-8", "zeroes"],
)
def test_rubbish_is_damage_and_never_a_crash(store: MemoryStore, data: bytes) -> None:
    history = published(store)
    store.put(entry_path(4), data)
    assert history.read()[3].damage


@pytest.mark.parametrize("attempt", [0, -1, 5, 1 << 62])
def test_an_attempt_that_cannot_be_is_damage(store: MemoryStore, attempt: int) -> None:
    history = published(store)
    store.put(entry_path(4), entries.encode(manifest(3, attempt), "x", ""))
    assert "attempt" in (history.read()[3].damage or "")


def test_an_entry_too_large_to_be_one_is_not_loaded(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    history = published(store)
    limit = len(store.get(entry_path(1)))
    monkeypatch.setattr(entries, "MAX_ENTRY_BYTES", limit)
    claim, *manifests = history.read()
    assert claim.entry is not None
    assert all("more than an entry can have" in (r.damage or "") for r in manifests)
    with pytest.raises(StorageError, match=f"{limit} are the limit"):
        history.publish(manifest(3, 1, snapshot(store, 3, 1)))


def test_files_that_are_no_entries_are_left_alone(store: MemoryStore) -> None:
    history = published(store)
    store.put("history/README", b"hello")
    assert len(history.read()) == 3


def test_a_person_can_read_an_entry(store: MemoryStore) -> None:
    published(store)
    lines = store.get(entry_path(1)).decode().splitlines()
    assert lines[0] == "{" and lines[-1] == "}"
    assert '    "kind": "claim",' in lines and '    "attempt": 1,' in lines
