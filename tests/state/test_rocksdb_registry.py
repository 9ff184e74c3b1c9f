"""The meta rows of a database: what is written there is read again, those of older formats too, and nothing else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from stable_ids import shown
from type_trees import types

from moorline.errors import SnapshotCorrupt
from moorline.model.type_tree import tree
from moorline.state.rocksdb.layout import number_bytes
from moorline.state.rocksdb.registry import Entry, Registry
from moorline.state.rocksdb.store import Store, new_batch

STATE = number_bytes(0) + b"s"


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "db", 8 << 20)
    yield store
    store.close()


def put(store: Store, name: str, value: object) -> None:
    batch = new_batch()
    batch[STATE + name.encode()] = value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
    store.write(batch)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(types)
def test_a_state_is_found_again_with_its_type(store, stored_type):
    one = Registry(store)
    one.put("s", Entry(1, "value", stored_type, is_windowed=True))
    one.put("m", Entry(2, "map", tree.Map(stored_type, stored_type)))
    assert Registry(store).entries == one.entries


def test_the_type_of_a_row_of_an_older_format_is_a_text(store):
    put(store, "s", {"number": 1, "kind": "value", "type": "Basket(owner: str)", "is_windowed": True})
    put(store, "m", {"number": 2, "kind": "map", "type": "str to list[int]"})
    basket = tree.Fields.of("Basket", {"owner": tree.Word("str")})
    assert Registry(store).entries == {
        "s": Entry(1, "value", basket, is_windowed=True),
        "m": Entry(2, "map", tree.Map(tree.Word("str"), tree.List.of(list, tree.INT))),
    }


DEEP = b"\x83\xa2is\xa4list\xa5build\xa4list\xa4item"
INT = {"is": "word", "word": "int"}


@pytest.mark.parametrize(
    ("kind", "hostile"),
    [
        ("value", "os.system"),
        ("value", "int to int"),
        ("map", "int"),
        ("map", INT),
        ("value", {"is": "map", "key": INT, "value": INT}),
        ("value", {"is": "word", "word": "os.system"}),
        ("value", None),
        ("value", msgspec.Raw(DEEP * 100 + msgspec.msgpack.encode(INT))),
        ("value", msgspec.Raw(DEEP * 100_000 + msgspec.msgpack.encode(INT))),
    ],
    ids=lambda h: f"{shown(h):.30}",
)
def test_another_type_is_damage(store, kind, hostile):
    put(store, "s", {"number": 1, "kind": kind, "type": hostile})
    with pytest.raises(SnapshotCorrupt, match="its meta rows cannot be read"):
        Registry(store)
