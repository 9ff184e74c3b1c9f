"""Delta tables that are another, have gone back, or ask more of readers and writers than they are given."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from test_delta_sink import LINE, committer, made, writer
from test_delta_source import append, numbers, reading

import moorline as mo
from moorline.errors import InvalidArgument, StorageError


def change_log(folder: Path, kind: str, **changes: Any) -> None:
    """Change an action of the table's first version, as another writer would have made it."""
    path = folder / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if kind in action:
            for name, value in changes.items():
                before = action[kind].get(name)
                action[kind][name] = {**before, **value} if isinstance(before, dict) else value
    path.write_text("\n".join(map(json.dumps, actions)))


def give_features(folder: Path, *features: str) -> None:
    named = {"readerFeatures": list(features), "writerFeatures": list(features)}
    change_log(folder, "protocol", minReaderVersion=3, minWriterVersion=7, **named)


def followed(folder: Path) -> mo.Source[Any]:
    return mo.read_delta(folder, follow=True, interval="1s")


@pytest.mark.parametrize("is_longer", [True, False])
@pytest.mark.parametrize("is_running", [True, False])
def test_a_table_that_was_made_anew_is_not_followed(tmp_path, is_longer, is_running):
    append(tmp_path, 0, 2)
    append(tmp_path, 2, 4)
    with reading(followed(tmp_path)) as source:
        assert numbers(source.read(4)) == [0, 1, 2, 3]
        snapshot = source.snapshot()
        shutil.rmtree(tmp_path)
        for first in range(100, 105 if is_longer else 101):
            append(tmp_path, first, first + 1)
        if is_running:
            source.advance_clock(1_000)
            with pytest.raises(StorageError, match="it was removed and made anew") as caught:
                source.read(1)
    if not is_running:
        with (
            pytest.raises(StorageError, match="it was removed and made anew") as caught,
            reading(followed(tmp_path), snapshot) as again,
        ):
            again.read(1)
    assert caught.value.can_pass is False


def test_a_table_whose_log_has_gone_back_is_not_followed(tmp_path):
    append(tmp_path, 0, 2)
    append(tmp_path, 2, 4)
    with reading(followed(tmp_path)) as source:
        source.read(4)
        (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
        source.advance_clock(1_000)
        with pytest.raises(StorageError, match="its newest version is 0, and version 1 was read: it has gone back"):
            source.read(1)


def test_columns_that_come_are_said_and_a_chosen_one_that_goes_ends_it(tmp_path, caplog):
    append(tmp_path, 0, 2)
    chosen = mo.read_delta(tmp_path, columns=["text"], follow=True, interval="1s", on_removal="ignore")
    with reading(followed(tmp_path)) as source, reading(chosen) as strict:
        source.read(2)
        strict.read(2)
        more = pa.table({"number": [2], "text": ["c"], "more": [True]})
        write_deltalake(tmp_path, more, mode="append", schema_mode="merge")
        source.advance_clock(1_000)
        with caplog.at_level(logging.WARNING, "moorline"):
            assert source.read(1) == [{"number": 2, "text": "c", "more": True}]
        assert "the columns have changed: they were (number int64, text string)" in caplog.text
        write_deltalake(tmp_path, pa.table({"number": [9]}), mode="overwrite", schema_mode="overwrite")
        strict.advance_clock(1_000)
        with pytest.raises(StorageError, match="it has no column text any more"):
            strict.read(2)


@pytest.mark.parametrize(
    "features, configuration, cause",
    [
        (["columnMapping"], {"delta.columnMapping.mode": "name"}, "its columns have other names in its files"),
        (["deletionVectors"], {"delta.enableDeletionVectors": "true"}, "rows of its files are deleted beside them"),
        (["typeWidening"], {}, "its files may have other types"),
    ],
    ids=["mapping", "deletion vectors", "widening"],
)
def test_a_table_that_cannot_be_read_whole_is_refused(tmp_path, features, configuration, cause):
    """The library opens them; columns would all be null, and deleted rows would be back."""
    append(tmp_path, 0, 2)
    schema = json.loads(DeltaTable(tmp_path).schema().to_json())
    for number, field in enumerate(schema["fields"]):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    give_features(tmp_path, *features)
    change_log(tmp_path, "metaData", configuration=configuration, schemaString=json.dumps(schema))
    with pytest.raises(InvalidArgument, match=cause):
        mo.read_delta(tmp_path).check()
    with pytest.raises(StorageError, match=cause), reading(mo.read_delta(tmp_path)) as source:
        source.read(1)


def test_harmless_features_are_none_to_refuse(tmp_path):
    append(tmp_path, 0, 2)
    give_features(tmp_path, "vacuumProtocolCheck")
    mo.read_delta(tmp_path).check()


@pytest.mark.parametrize(
    "configuration, cause",
    [
        ({"delta.constraints.positive": "number > 0"}, "it has the constraint positive"),
        ({"delta.columnMapping.mode": "id"}, "its columns have other names in its files"),
        ({"delta.enableRowTracking": "true"}, "it tracks rows"),
    ],
)
def test_a_table_that_asks_more_of_writers_is_refused(tmp_path, configuration, cause):
    append(tmp_path, 0, 2)
    change_log(tmp_path, "metaData", configuration=configuration)
    with pytest.raises(InvalidArgument, match=cause):
        mo.write_delta(tmp_path).check()


def test_a_table_with_a_generated_column_is_refused(tmp_path):
    append(tmp_path, 0, 2)
    schema = json.loads(DeltaTable(tmp_path).schema().to_json())
    schema["fields"][0]["metadata"]["delta.generationExpression"] = "length(text)"
    change_log(tmp_path, "metaData", schemaString=json.dumps(schema))
    with pytest.raises(InvalidArgument, match="its column number is generated"):
        mo.write_delta(tmp_path).check()


class TestFilesThatWereStagedBefore:
    @pytest.fixture
    def staged(self, tmp_path):
        sink = made(tmp_path)
        open_writer = writer(sink)
        open_writer.write([{"number": 1, "text": "a"}])
        return sink, open_writer.prepare(1)

    def refused(self, staged, words):
        sink, files = staged
        with pytest.raises(StorageError, match=words) as caught:
            committer(sink).commit(LINE, 1, files)
        assert caught.value.can_pass is False

    def test_do_not_go_into_a_table_that_was_made_anew(self, tmp_path, staged):
        shutil.rmtree(tmp_path / "_delta_log")
        made(tmp_path)
        self.refused(staged, "the table was removed and made anew since files for this checkpoint were staged")
        assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 0

    def test_do_not_go_where_a_column_has_another_type(self, tmp_path, staged):
        other = pa.table({"number": ["one"], "text": ["a"]})
        write_deltalake(tmp_path, other, mode="overwrite", schema_mode="overwrite")
        self.refused(staged, "column number is string now, and int64 in files that were staged before")

    def test_do_not_go_where_there_are_constraints_now(self, tmp_path, staged):
        DeltaTable(tmp_path).alter.add_constraint({"positive": "number > 0"})
        self.refused(staged, "it has the constraint positive")

    def test_say_it_if_a_column_is_gone(self, tmp_path, staged, caplog):
        write_deltalake(tmp_path, pa.table({"number": [7]}), mode="overwrite", schema_mode="overwrite")
        sink, files = staged
        with caplog.at_level(logging.WARNING, "moorline"):
            committer(sink).commit(LINE, 1, files)
        assert "it has no column text any more: its values in checkpoint 1 cannot be read" in caplog.text
        assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["number"].to_pylist()) == [1, 7]

    def test_go_in_beside_columns_that_came(self, tmp_path, staged):
        sink, files = staged
        write_deltalake(tmp_path, pa.table({"more": [True]}), mode="append", schema_mode="merge")
        committer(sink).commit(LINE, 1, files)
        assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 2
