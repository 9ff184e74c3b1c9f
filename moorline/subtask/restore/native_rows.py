"""Files of the RocksDB backend as rows: for the heap backend, and where keys are changed on the way."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import KeyedHandle
from moorline.state.backend import Restored
from moorline.state.rocksdb.export import read_native


class Natives:
    """A context in which native handles can be read as rows. Files are fetched once, and opened for every piece."""

    def __enter__(self) -> Natives:
        self._folder = Path(tempfile.mkdtemp(prefix="moorline-native-"))
        self._fetched: dict[tuple[str, ...], Path] = {}
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def as_rows(self, restored: Sequence[Restored], piece: KeyGroupRange, max_parallelism: int) -> Iterator[Restored]:
        """The same with rows in place of native files, which are read into memory."""
        for one in restored:
            if one.handle.kind != "native":
                yield one
                continue
            mine = piece & KeyGroupRange(one.handle.first, one.handle.end)
            found: dict[tuple[str, str, str], list[Any]] = {}
            for rows in read_native(self._fetch(one), self._folder / "open", mine, max_parallelism):
                found.setdefault((rows.state, rows.kind, rows.type), []).append(rows.table)
            for (state, kind, type_name), tables in found.items():
                handle = KeyedHandle(state, kind, type_name, mine.first, mine.end, sum(t.num_rows for t in tables))
                yield Restored(handle, lambda tables=tables: iter(tables), one.fetch)  # type: ignore[misc]

    def _fetch(self, one: Restored) -> Callable[[Path], None]:
        files = tuple(file.file.path for file in one.handle.files)
        if files not in self._fetched:
            kept = self._folder / str(len(self._fetched))
            kept.mkdir()
            one.fetch(kept)
            self._fetched[files] = kept

        def link(folder: Path) -> None:
            for path in self._fetched[files].iterdir():
                os.link(path, folder / path.name)

        return link
