"""Messages of PostgreSQL's log, from bytes: as the server sends them, cut off, and broken."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.connectors.postgres.changes import pgoutput
from moorline.connectors.postgres.changes.pgoutput import Malformed, RelationColumn, decode

#: Recorded from PostgreSQL 15.
BEGIN = bytes.fromhex("42 00000000090de9c8 00030381cec70b60 000002f0")
COMMIT = bytes.fromhex("43 00 00000000090de9c8 00000000090de9f8 00030381cec70b60")
RELATION = (
    b"R\x00\x00@rpublic\x00cx\x00d\x00\x03\x01id\x00\x00\x00\x00\x17\xff\xff\xff\xff"
    b"\x00t\x00\x00\x00\x00\x19\xff\xff\xff\xff\x00big\x00\x00\x00\x00\x19\xff\xff\xff\xff"
)
INSERT = b"I\x00\x00@rN\x00\x03t\x00\x00\x00\x011t\x00\x00\x00\x01an"
UPDATE = b"U\x00\x00@rN\x00\x03t\x00\x00\x00\x012t\x00\x00\x00\x01qu"
DELETE = b"D\x00\x00@rK\x00\x03t\x00\x00\x00\x011nn"
TRUNCATE = b"T\x00\x00\x00\x01\x00\x00\x00@r"
MESSAGES = [BEGIN, COMMIT, RELATION, INSERT, UPDATE, DELETE, TRUNCATE]


def test_a_transaction():
    assert decode(BEGIN) == pgoutput.Begin(0x090DE9C8, 848_280_984_947_552, 752)
    assert decode(COMMIT) == pgoutput.Commit(0x090DE9C8, 0x090DE9F8)


def test_a_relation():
    relation = decode(RELATION)
    assert relation.table == "public.cx" and relation.identity == "d" and relation.oid == 16498
    columns = (RelationColumn("id", 23, True), RelationColumn("t", 25, False), RelationColumn("big", 25, False))
    assert relation.columns == columns


def test_a_relation_of_the_catalogue():
    assert decode(RELATION.replace(b"public\0", b"\0")).table == "pg_catalog.cx"


def test_rows():
    assert decode(INSERT) == pgoutput.Insert(16498, [b"1", b"a", None])
    assert decode(UPDATE) == pgoutput.Update(16498, "", None, [b"2", b"q", ...])
    assert decode(DELETE) == pgoutput.Delete(16498, "K", [b"1", None, None])
    assert decode(TRUNCATE) == pgoutput.Truncate((16498,))


@pytest.mark.parametrize("kind", ["K", "O"])
def test_an_update_with_the_row_before(kind):
    old = b"\x00\x03t\x00\x00\x00\x011nn"
    update = decode(UPDATE[:5] + kind.encode() + old + UPDATE[5:])
    assert update == pgoutput.Update(16498, kind, [b"1", None, None], [b"2", b"q", ...])


def test_several_tables_that_are_truncated():
    assert decode(b"T" + struct.pack("!IBII", 2, 3, 7, 8)) == pgoutput.Truncate((7, 8))


@pytest.mark.parametrize("kind", [b"O", b"Y", b"M"])
def test_messages_of_no_account_are_passed_over(kind):
    assert decode(kind + b"whatever") is None


@pytest.mark.parametrize("data", [b"", b"x", b"S\x00\x00\x00\x01"])
def test_what_is_no_message_is_refused(data):
    with pytest.raises(Malformed, match="there is no message"):
        decode(data)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message[:1].decode())
def test_a_message_that_is_cut_off_is_refused(message):
    for end in range(1, len(message)):
        cut = message[:end]
        if message is COMMIT and end >= 18:
            continue  # the time is of no account
        with pytest.raises(Malformed):
            decode(cut)


@pytest.mark.parametrize(
    "data, cause",
    [
        (INSERT.replace(b"N", b"K"), "in place of one of"),
        (DELETE.replace(b"K", b"N"), "in place of one of"),
        (UPDATE.replace(b"u", b"x"), "there is no field b'x'"),
        (b"I\x00\x00@rN\x00\x01t\xff\xff\xff\xff", "longer than its message"),
        (b"I\x00\x00@rN\x00\x01t\x7f\xff\xff\xff", "longer than its message"),
        (b"R\x00\x00@r" + b"\xff\x00x\x00d\x00\x00", "broken"),
        (b"R\x00\x00@rpublic", "a name has no end"),
    ],
)
def test_a_message_that_is_broken_is_refused(data, cause):
    with pytest.raises(Malformed, match=cause):
        decode(data)


@given(st.binary(max_size=60), st.sampled_from(MESSAGES), st.integers(0, 60))
def test_whatever_comes_it_is_decoded_or_refused(noise, message, place):
    try:
        decode(message[:place] + noise)
    except Malformed:
        return
