"""Explanations of state as JSON: for the endpoint of a job and the command line."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any

from moorline.http import wire
from moorline.snapshots.explanation.report import Explanation, KeySize


def explanation_to_json(explanation: Explanation) -> dict[str, Any]:
    """An explanation as JSON would hold it, with keys as queries take them.

    >>> explanation_to_json(Explanation("orders", 7, "file:///chk/orders", 0, 900, (), ()))["checkpoint"]
    7
    """
    content = asdict(explanation)
    for fields, state in zip(content["states"], explanation.states):
        fields["largest"] = [_key(key) for key in state.largest]
    return content


def _key(size: KeySize) -> dict[str, Any]:
    key = wire.encoded_key_to_json(size.encoded)
    # As people write it, if that is the same key again. A snapshot may say anything, so it may be no key at all.
    with suppress(ValueError, TypeError, OverflowError, RecursionError):
        readable = wire.to_json(size.key)
        key = readable if wire.key_from_json(readable) == size.encoded else key
    return {"key": key, "key_group": size.key_group, "rows": size.rows, "bytes": size.bytes}
