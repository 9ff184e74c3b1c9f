"""Explanations of state as JSON: for the endpoint of a job and the command line."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any

from moorline.http import wire
from moorline.snapshots.explanation.report import Explanation, KeyRate, KeySize


def explanation_to_json(explanation: Explanation) -> dict[str, Any]:
    """An explanation as JSON would hold it, with keys as queries take them.

    >>> explanation_to_json(Explanation("orders", 7, "file:///chk/orders", 0, 900, (), ()))["checkpoint"]
    7
    """
    content = asdict(explanation)
    for fields, state in zip(content["states"], explanation.states):
        fields["largest"] = [
            {"key": _key(key), "key_group": key.key_group, "rows": key.rows, "bytes": key.bytes}
            for key in state.largest
        ]
    for fields, operator in zip(content["operators"], explanation.operators):
        fields["hottest"] = [
            {"key": _key(key), "share": key.share, "records_per_second": key.records_per_second}
            for key in operator.hottest
        ]
    return content


def _key(of: KeySize | KeyRate) -> Any:
    """As people write it, if that is the same key again. A snapshot may say anything, so it may be no key at all."""
    with suppress(ValueError, TypeError, OverflowError, RecursionError):
        readable = wire.to_json(of.key)
        if wire.key_from_json(readable) == of.encoded:
            return readable
    return wire.encoded_key_to_json(of.encoded)
