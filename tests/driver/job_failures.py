"""Failures that a subtask reports, and how often a job is tried again."""

from __future__ import annotations

import moorline as mo
from moorline.model.wire.messages import Failed


def user_failure(text: str = "ValueError: no", record: str = "0") -> Failed:
    return Failed(error=text, traceback="...", uid="count", name="f", position=3, record=record)


def fixed(attempts: int = 50, delay: str = "1s") -> mo.FixedDelay:
    return mo.FixedDelay(attempts=attempts, delay=delay)
