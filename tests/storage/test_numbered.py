"""Numbered files: one writer gets a number, and a write with an unknown outcome is looked for and not repeated."""

from __future__ import annotations

import pytest
from wrapped_stores import WrappedStore

from moorline.errors import StorageError
from moorline.storage.numbered import NumberedFiles
from moorline.storage.stores.memory import MemoryStore


def files(store: WrappedStore | MemoryStore | None = None) -> NumberedFiles:
    return NumberedFiles(store or MemoryStore("numbered"), "history/")


class Unsure(WrappedStore):
    """Fails each put, after it was done or before."""

    def __init__(self, is_done: bool) -> None:
        super().__init__()
        self.is_done, self.puts = is_done, 0

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.puts += 1
        if self.is_done:
            super().put_if_absent(path, data)
        raise StorageError(path, "write", "the answer was lost")


def append(numbered: NumberedFiles, number: int, data: bytes) -> bool:
    return numbered.append(number, data, looks_after_error=True)


def test_a_number_is_written_once():
    numbered = files()
    assert append(numbered, 1, b"first")
    assert not append(numbered, 1, b"second")
    assert append(numbered, 2, b"second")
    assert [number for number, _ in numbered.list()] == [1, 2]


def test_what_is_there_already_is_ours_if_it_is_what_we_write():
    numbered = files()
    assert append(numbered, 1, b"ours") and append(numbered, 1, b"ours")


@pytest.mark.parametrize("is_done", [True, False])
def test_after_an_error_it_looks_and_does_not_write_again(is_done):
    store = Unsure(is_done)
    if is_done:
        assert append(files(store), 1, b"ours")
    else:
        with pytest.raises(StorageError, match="the answer was lost"):
            append(files(store), 1, b"ours")
    assert store.puts == 1


def test_after_an_error_a_number_of_another_is_taken():
    store = Unsure(is_done=False)
    store.inner.put("history/0000000001.json", b"another's")
    assert not append(files(store), 1, b"ours")


def test_an_error_is_the_callers_who_does_not_look():
    with pytest.raises(StorageError, match="the answer was lost"):
        files(Unsure(is_done=True)).append(1, b"ours", looks_after_error=False)


def test_a_number_that_was_removed_before_we_looked_is_not_ours():
    class Hasty(WrappedStore):
        def put_if_absent(self, path, data):
            return False  # taken, and removed before anybody can look

    assert not append(files(Hasty()), 1, b"ours")


def test_other_files_of_the_folder_are_left_out_and_a_removed_number_is_gone():
    store = MemoryStore("beside")
    numbered = files(store)
    for number in (3, 1, 2):
        append(numbered, number, b"x")
    store.put("history/notes.txt", b"")
    store.put("history/0000000009.json.bak", b"")
    numbered.remove([2])
    assert [(number, blob.path) for number, blob in numbered.list()] == [
        (1, "history/0000000001.json"),
        (3, "history/0000000003.json"),
    ]
