"""``mo.read_delta``: a Delta table as a source, as it is declared. Needs ``pip install moorline[delta]``."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from moorline.api.sources import Source
from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options


@checks_options()
def read_delta(
    table: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    follow: bool = False,
    start: Literal["earliest", "latest"] = "earliest",
    on_removal: Literal["fail", "ignore"] = "fail",
    interval: Duration = "10s",
    storage_options: Mapping[str, str] | None = None,
    patience: float = 60.0,
) -> Source[dict[str, Any]]:
    """Read the rows of the Delta table at ``table``, as dicts.

    All that is in it, and the end; with ``follow`` then what further versions add, each row once. ``start="latest"``
    leaves out what is there at the first start. A version that takes rows away (a delete, an update, an overwrite) ends
    a job that follows, because it has read them: ``on_removal="ignore"`` reads on, and gets rows that were rewritten
    once more. Rewrites that change no data (``optimize``) are passed over.

    ``interval``: between two looks at the table's log. ``columns``: of the table; all, if it is left out.

    >>> import tempfile, moorline as mo
    >>> read_delta("/data/orders", follow=True, interval="1s").is_bounded
    False
    """
    uri = os.fspath(table)
    if not isinstance(uri, str) or not uri:
        raise InvalidArgument("table", table, "Give the path or the URL of a Delta table.")
    if start not in ("earliest", "latest"):
        raise InvalidArgument("start", start, 'It is "earliest" or "latest".')
    if start == "latest" and not follow:
        raise InvalidArgument("start", start, "There is nothing to read unless the table is followed: follow=True.")
    if on_removal not in ("fail", "ignore"):
        raise InvalidArgument("on_removal", on_removal, 'It is "fail" or "ignore".')
    delta = _delta()
    location = delta.TableLocation(uri, dict(storage_options or {}))
    if isinstance(columns, str) or (columns is not None and not columns):
        raise InvalidArgument("columns", columns, "Give a list of names, or leave it out.")
    if patience < 0:
        raise InvalidArgument("patience", patience, "Give it in seconds.")
    wanted = None if columns is None else list(columns)
    interval_ms = milliseconds(interval, "interval")
    source: Source[dict[str, Any]] = delta.DeltaSource(
        location, wanted, follow, start, on_removal, interval_ms, patience
    )
    return source


def _delta() -> Any:
    try:
        return importlib.import_module("moorline.connectors.delta.source")
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != "deltalake":
            raise
        raise InvalidArgument("read_delta", "no deltalake", "Install it: pip install 'moorline[delta]'.") from None
