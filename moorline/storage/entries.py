"""The file of an entry of the history: its bytes, and the checks that one must pass to be believed.

    {
      "xxh3": "0123456789abcdef",      over the bytes of the entry exactly as they stand here
      "writer": "5f0c...",             random, one per driver: tells our own bytes from a twin's
      "after": "fedcba9876543210",     the digest of the file one number below, as the writer saw it
      "place": {"number": 44,          where it was written; and the numbers below with their digests:
                "stays": {"41": ...},  what is to be there from now on
                "goes": {"42": ...}},  what is being removed
      "entry": {"kind": "claim" | "checkpoint", "format": 4, "job": ..., "attempt": ..., ...}
    }

Readable, so that a person can look; typed, so that nothing in it can run; bounded, so that a file of 10 GB is refused
and not loaded. Pure: ``history.py`` does the reading and writing.
"""

from __future__ import annotations

import msgspec
import xxhash

from moorline.errors import SnapshotCorrupt
from moorline.model.manifest import FORMAT, Entry, Manifest
from moorline.storage.stored_handles import StoredEntry, StoredManifest, from_stored, to_stored

#: Larger ones are neither written nor read.
MAX_ENTRY_BYTES = 256 << 20


class Place(msgspec.Struct, frozen=True):
    """The place of an entry, and the entries below it by number and digest; "" for a digest that is unknown."""

    number: int
    stays: dict[int, str] = {}
    goes: dict[int, str] = {}

    def is_possible(self) -> bool:
        """Are all that it names below it? The checksum is over the entry alone, and not over its envelope."""
        return all(1 <= number < self.number for number in (*self.stays, *self.goes))

    def digest_of(self, number: int) -> str | None:
        """The digest of an entry below; None if this place does not name it."""
        return self.stays.get(number, self.goes.get(number))


class Origin(msgspec.Struct, frozen=True):
    """The envelope of an entry: its writer and its place in the log. Entries of earlier versions have no place."""

    writer: str = ""
    after: str = ""
    place: Place | None = None


class _Envelope(msgspec.Struct):
    xxh3: str
    entry: msgspec.Raw
    writer: str = ""
    after: str = ""
    place: Place | None = None


class _Head(msgspec.Struct):
    """The fields that every version of the format has."""

    format: int
    job: str


_encoder = msgspec.json.Encoder()
_envelopes = msgspec.json.Decoder(_Envelope)
_heads = msgspec.json.Decoder(_Head)
_entries = msgspec.json.Decoder(StoredEntry)


def encode(entry: Entry, writer: str, after: str, place: Place | None = None) -> bytes:
    """The bytes of the file."""
    stored = to_stored(entry) if isinstance(entry, Manifest) else entry
    pretty = msgspec.json.format(_encoder.encode(stored), indent=2)
    # JSON writes a line break inside a string as \\n, so each one here is layout and may be indented.
    body = pretty.replace(b"\n", b"\n  ")
    head = f'{{\n  "xxh3": "{digest(body)}",\n  "writer": "{writer}",\n  "after": "{after}",\n'.encode()
    if place is not None:
        head += b'  "place": ' + msgspec.json.format(_encoder.encode(place), indent=0) + b",\n"
    return head + b'  "entry": ' + body + b"\n}\n"


def digest(data: bytes) -> str:
    """The checksum of an entry, and the name by which the next one says what it comes after."""
    return xxhash.xxh3_64_hexdigest(data)


def decode(data: bytes, job: str | None, number: int) -> Entry:
    """The entry of ``job`` in a file. Raises SnapshotCorrupt, with no path in it, if it is not one we may use.

    None for ``job``: of whichever job it is, for those who only look.
    """
    try:
        envelope = _envelopes.decode(data)
        body = bytes(envelope.entry)
        if digest(body) != envelope.xxh3:
            raise SnapshotCorrupt("", "it is not what was written (checksum)")
        if envelope.place is not None and not envelope.place.is_possible():
            raise SnapshotCorrupt("", "it is not what was written: it names entries that cannot be below it")
        # The head first: a newer format may differ in everything else.
        head = _heads.decode(body)
        if head.format > FORMAT:
            raise SnapshotCorrupt(
                "", f"it has format {head.format}, and this version of Moorline reads up to {FORMAT}: use a newer one"
            )
        if job is not None and head.job != job:
            raise SnapshotCorrupt("", f"it belongs to job {head.job!r}, not to {job!r}")
        entry: StoredEntry = _entries.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotCorrupt("", f"it cannot be read: {error}") from error
    # Attempts count claims and each claim takes a number, so an attempt is never above its number.
    if not 1 <= entry.attempt <= number:
        raise SnapshotCorrupt("", f"it says attempt {entry.attempt}, which cannot stand at number {number}")
    return from_stored(entry) if isinstance(entry, StoredManifest) else entry


def origin(data: bytes) -> Origin | None:
    """The envelope of a file, as far as it can be read."""
    try:
        envelope = _envelopes.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return Origin(envelope.writer, envelope.after, envelope.place)
