"""One RocksDB database: how it is opened, read, written and copied. The only file that calls rocksdict.

What rocksdict does in its own way is put right here:

- Its errors are bare ``Exception``; here they become ours, once.
- ``items()`` just ends where a block is damaged. State would be lost without a word, so :func:`_steps` asks the
  iterator how it ended.
- An iterator keeps a pointer to its upper bound and nothing that keeps those bytes alive. So we do, as long as it runs.
- The iterators of ``Snapshot`` show the rows of now, not those of the snapshot. But every iterator of RocksDB shows the
  rows of the moment it was made, so a :class:`View` is made of those.
- Nothing is written to the write-ahead log: what makes state durable is the checkpoint. A crash loses the database,
  and the next attempt has another folder.

**Compaction** is universal: a file is rewritten when the newer ones have grown to its size, not whenever a key in
it has changed. So an incremental checkpoint uploads little where little has changed, at the price of up to twice the
disk (docs/decisions/0009).

**Memory.** Blocks, indexes, filters and memtables share one cache of fixed size. Must be opened after a fork.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import rocksdict

from moorline.errors import SnapshotCorrupt, StorageError

#: Files of a checkpoint that a database cannot be opened without. The rest is logs and copies of our options.
_NEEDED = (".sst", "CURRENT", "MANIFEST-")

#: What the operating system says when it is not the fault of a file, as RocksDB repeats it.
_LIMITS = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS, errno.EACCES, errno.EIO)
_OF_THIS_MACHINE = tuple(os.strerror(number) for number in _LIMITS)

Row = tuple[bytes, bytes]

#: Properties that are not 0 while compaction is so far behind that writes are held back.
_SLOW = ("is-write-stopped", "actual-delayed-write-rate")

#: Rows that are read at once while nothing is known of their size.
_FIRST_ROWS = 64


class Store:
    """An open database."""

    def __init__(self, folder: Path, memory: int, *, read_only: bool = False, must_exist: bool = False) -> None:
        self.folder = folder
        self._cache = rocksdict.Cache(memory)
        self._options = _options(self._cache, memory, create=not must_exist)
        access = rocksdict.AccessType.read_only() if read_only else rocksdict.AccessType.read_write()
        try:
            self._db = rocksdict.Rdict(str(folder), self._options, access_type=access)
        except Exception as error:  # rocksdict raises nothing narrower
            self.is_restoring = must_exist
            raise self._translated("open", error) from error
        self._write_options = rocksdict.WriteOptions()
        self._write_options.disable_wal = True  # a property, whatever its stub says
        #: Is what is damaged the fault of a snapshot?
        self.is_restoring, self._is_closed = must_exist, False
        #: Rows that were looked up by their keys.
        self.rows_read = 0
        self._version_at_open = self.version()

    # --- reading --------------------------------------------------------------------------------

    def get(self, row: bytes) -> bytes | None:
        self.rows_read += 1
        try:
            value: bytes | None = self._db.get(row)
            return value
        except Exception as error:  # rocksdict raises nothing narrower
            raise self._translated("read from", error) from error

    def multi_get(self, rows: list[bytes]) -> list[bytes | None]:
        self.rows_read += len(rows)
        try:
            return self._db.get(rows)  # type: ignore[no-any-return]
        except Exception as error:  # rocksdict raises nothing narrower
            raise self._translated("read from", error) from error

    def scan(self, start: bytes, end: bytes) -> Iterator[Row]:
        """The rows from ``start`` up to ``end``, as they are now. They may be changed on the way."""
        # Not a generator: the iterator must be of now, not of the first step.
        iterator = self._iterator(end)
        iterator.seek(start)
        return _steps(iterator, end, self)

    def view(self, start: bytes, end: bytes) -> View:
        """The rows from ``start`` up to ``end`` as they are now, for another thread too."""
        return View(self, self._iterator(end), start, end)

    def _iterator(self, end: bytes) -> rocksdict.RdictIter:
        """An iterator up to ``end``, which the caller must keep alive as long as it is used."""
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(end)
        try:
            return self._db.iter(options)
        except Exception as error:  # rocksdict raises nothing narrower
            raise self._translated("read from", error) from error

    # --- writing --------------------------------------------------------------------------------

    def write(self, batch: rocksdict.WriteBatch) -> None:
        if batch.is_empty():
            return
        try:
            self._db.write(batch, self._write_options)
        except Exception as error:  # rocksdict raises nothing narrower
            raise self._translated("write to", error) from error

    # --- as a whole -----------------------------------------------------------------------------

    def checkpoint(self, folder: Path) -> dict[str, Path]:
        """Everything written so far, as files that stay as they are. Files of earlier checkpoints are hard links."""
        try:
            rocksdict.Checkpoint(self._db).create_checkpoint(str(folder))
        except Exception as error:  # rocksdict raises nothing narrower
            raise self._translated("take a checkpoint of", error) from error
        return {p.name: p for p in sorted(folder.iterdir()) if p.name.startswith(_NEEDED) or p.name.endswith(_NEEDED)}

    def flush(self) -> None:
        try:
            self._db.flush()
        except Exception as error:  # rocksdict raises nothing narrower
            raise self._translated("write to", error) from error

    def version(self) -> int:
        """A number that is another after every write."""
        return int(self._db.latest_sequence_number())

    def memory_bytes(self) -> int:
        """The memory that RocksDB has allocated for blocks, indexes, filters and memtables."""
        return int(self._cache.get_usage()) + self._property("rocksdb.estimate-table-readers-mem")

    def estimated_rows(self) -> int:
        return self._property("rocksdb.estimate-num-keys")

    def disk_bytes(self) -> int:
        return self._property("rocksdb.live-sst-files-size")

    def figures(self) -> dict[str, int]:
        """Figures of the database, for people: sizes as they are, and rows read and written since it was opened."""
        return {
            "disk_bytes": self.disk_bytes(),
            "rows": self.estimated_rows(),
            "rows_read": self.rows_read,
            "rows_written": self.version() - self._version_at_open,
            "slows_writes": int(any(self._property(f"rocksdb.{name}") for name in _SLOW)),
        }

    def _property(self, name: str) -> int:
        return int(self._db.property_int_value(name) or 0)

    def close(self) -> None:
        """May be called twice."""
        if not self._is_closed:
            self._is_closed = True
            self._db.close()

    def _translated(self, operation: str, error: Exception) -> Exception:
        cause = str(error)
        is_damage = cause.startswith("Corruption") or (operation == "open" and not _is_of_this_machine(cause))
        if self.is_restoring and is_damage:
            return SnapshotCorrupt(str(self.folder), cause)
        return StorageError(str(self.folder), operation, cause)


def _is_of_this_machine(cause: str) -> bool:
    """Say whether the disk or the process has come to a limit: then the files may be as good as they were.

    >>> _is_of_this_machine("IO error: No space left on device: While appending to file: /tmp/db/OPTIONS-000010.dbtmp")
    True
    """
    return any(text in cause for text in _OF_THIS_MACHINE)


class View:
    """A range of rows as it was at one moment. Holds on to memory and disk space until it is dropped."""

    def __init__(self, store: Store, iterator: rocksdict.RdictIter, start: bytes, end: bytes) -> None:
        self._store, self._iterator, self._start, self._end = store, iterator, start, end

    def rows(self) -> Iterator[Row]:
        """All of them."""
        self._iterator.seek(self._start)
        return _steps(self._iterator, self._end, self._store)

    def pieces(self, most_rows: int, most_bytes: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """All of them, as the row keys and the values of many at once, about as many as are allowed."""
        iterator = self._iterator
        iterator.seek(self._start)
        valid, key, value, forward = iterator.valid, iterator.key, iterator.value, iterator.next
        wanted = min(most_rows, _FIRST_ROWS)  # they show how large rows are
        while valid():
            rows, values, left = [], [], wanted
            while left and valid():
                rows.append(key())
                values.append(value())
                forward()
                left -= 1
            yield rows, values
            size = sum(map(len, rows)) + sum(map(len, values))
            wanted = min(most_rows, most_bytes * len(rows) // size + 1)
        _check(iterator, self._store)

    def first(self, start: bytes, end: bytes) -> bytes | None:
        """The first row key from ``start`` up to ``end``."""
        self._iterator.seek(start)
        row = self._key()
        return row if row is not None and row < end else None

    def last(self, start: bytes, end: bytes) -> bytes | None:
        """The last row key from ``start`` up to ``end``, which is no row key itself."""
        self._iterator.seek_for_prev(end)
        row = self._key()
        return row if row is not None and row >= start else None

    def _key(self) -> bytes | None:
        if self._iterator.valid():
            return self._iterator.key()  # type: ignore[no-any-return]
        _check(self._iterator, self._store)
        return None


def _steps(iterator: rocksdict.RdictIter, end: bytes, store: Store) -> Iterator[Row]:
    """The rows from where an iterator stands. ``end`` is held by this frame, for the iterator points to it."""
    valid, key, value, forward = iterator.valid, iterator.key, iterator.value, iterator.next
    while valid():
        yield key(), value()
        forward()
    _check(iterator, store)


def _check(iterator: rocksdict.RdictIter, store: Store) -> None:
    """It has ended: at the end, or at a damaged block?"""
    try:
        iterator.status()
    except Exception as error:  # rocksdict raises nothing narrower
        raise store._translated("read from", error) from error


def _options(cache: rocksdict.Cache, memory: int, create: bool) -> rocksdict.Options:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(create)
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    blocks.set_bloom_filter(10, False)
    blocks.set_format_version(5)
    options.set_block_based_table_factory(blocks)
    # Memtables are charged to the cache: together they stay within the memory given.
    memtables = max(memory // 3, 1 << 20)
    manager = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(memtables, False, cache)
    options.set_write_buffer_manager(manager)
    options.set_write_buffer_size(max(memtables // 3, 1 << 18))
    options.set_arena_block_size(1 << 18)
    # A batch asks for rows of which most are in no memtable: a filter says so without a walk through each of them.
    options.set_memtable_whole_key_filtering(True)
    options.set_memtable_prefix_bloom_ratio(0.1)
    options.set_allow_concurrent_memtable_write(False)  # there is one writer
    options.set_max_write_buffer_number(3)
    options.set_max_open_files(512)
    options.set_max_background_jobs(2)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    universal = rocksdict.UniversalCompactOptions()
    universal.max_size_amplification_percent = 100
    options.set_universal_compaction_options(universal)
    # A file that is mostly marks of removed rows is compacted soon: fired timers, closed windows, what has expired.
    options.add_compact_on_deletion_collector_factory(1000, 500, 0.5)
    options.set_target_file_size_base(32 << 20)
    # It is uploaded with every checkpoint, and would grow with each.
    options.set_max_manifest_file_size(128 << 10)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1 << 20)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def new_batch() -> rocksdict.WriteBatch:
    """An empty set of changes, for :meth:`Store.write`."""
    return rocksdict.WriteBatch(raw_mode=True)
