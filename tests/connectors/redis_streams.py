"""Streams in a real Redis for tests: names of their own, and entries in them."""

from __future__ import annotations

import itertools

import redis

_numbers = itertools.count(1)


def new_name(prefix: str = "stream") -> str:
    return f"{prefix}-{next(_numbers)}"


def fill(client: redis.Redis, stream: str, first: int, end: int) -> None:
    """Entries with the numbers ``[first, end)``, whose ids are these numbers."""
    pipeline = client.pipeline(transaction=False)
    for number in range(first, end):
        pipeline.xadd(stream, {"number": number, "text": f"entry {number}"}, id=f"{number + 1}-0")
    pipeline.execute()


def entries(first: int, end: int) -> list[dict[str, str]]:
    return [{"number": str(n), "text": f"entry {n}"} for n in range(first, end)]


def numbers(records: list[dict[str, str]]) -> list[int]:
    return [int(record["number"]) for record in records]


def written(client: redis.Redis, stream: str) -> list[dict[str, str]]:
    return [{k.decode(): v.decode() for k, v in fields.items()} for _, fields in client.xrange(stream)]
