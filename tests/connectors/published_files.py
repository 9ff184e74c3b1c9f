"""Writers of the file sink by hand, and the files that they have published."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from moorline.api.sinks import Sink, SinkContext, SinkWriter
from moorline.connectors.files.sink import STAGING


def published(folder: Path) -> list[Any]:
    """The records as a reader of the folder finds them, who knows nothing of Moorline."""
    out: list[Any] = []
    for file in sorted(folder.iterdir()) if folder.exists() else []:
        if file.name == STAGING:
            continue
        if file.suffix == ".parquet":
            out += pq.read_table(file).to_pylist()
        else:
            out += [json.loads(line) for line in file.read_text().splitlines()]
    return out


def open_writer(sink: Sink, subtask: int = 0, attempt: int = 1, job: str = "job", uid: str = "out") -> SinkWriter:
    return sink.open(SinkContext(job, uid, subtask, 1, attempt, lineage="5f1e" * 8))
