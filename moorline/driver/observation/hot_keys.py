"""The keys that get the most records, as JSON: of one subtask, and of an operator over all of its subtasks.

A key belongs to one subtask, so the most frequent keys of all are among the most frequent of each.
"""

from __future__ import annotations

import base64
from typing import Any

from moorline.model import keys

#: So many of an operator are shown, and so much of a key.
SHOWN = 10
SHOWN_CHARACTERS = 200


def hot_key(encoded: bytes, share: float, per_second: float) -> dict[str, Any]:
    """One of the keys of a subtask, with its share of the records that have a key there.

    >>> hot_key(b"sada", 0.25, 2_000.0)
    {'key': "'ada'", 'encoded': 'c2FkYQ==', 'share': 0.25, 'records_per_second': 500.0}
    """
    return {
        "key": f"{keys.decode_identity(encoded)!r:.{SHOWN_CHARACTERS}}",
        "encoded": base64.b64encode(encoded).decode(),
        "share": share,
        "records_per_second": round(share * per_second, 1),
    }


def hottest(of_subtasks: list[dict[str, Any]], per_second: float) -> list[dict[str, Any]]:
    """The most frequent of the keys of all subtasks, with their share of all records of the operator."""
    best = sorted(of_subtasks, key=lambda hot: -hot["records_per_second"])[:SHOWN]
    shares = (round(hot["records_per_second"] / per_second, 4) if per_second else 0.0 for hot in best)
    return [{**hot, "share": share} for hot, share in zip(best, shares)]
