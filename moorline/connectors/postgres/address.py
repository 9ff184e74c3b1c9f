"""The address of a PostgreSQL server for people, without user and password; and names of tables. Needs no psycopg."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from moorline.errors import InvalidArgument

_ADVICE = "Give postgresql://host/database."


def address_of(dsn: str) -> str:
    """Host and database of what libpq takes.

    >>> address_of("postgresql://me:secret@db.example:5433/shop"), address_of("host=db.example dbname=shop password=x")
    ('db.example:5433/shop', 'db.example/shop')
    """
    if "://" not in dsn:
        words = dict(re.findall(r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|\S+)", dsn))
        if dsn.strip() and not words:
            raise InvalidArgument("url of PostgreSQL", "(not shown)", _ADVICE)
        return f"{words.get('host', 'localhost')}/{words.get('dbname', '')}"
    try:
        parts = urlsplit(dsn)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("postgresql", "postgres"):
        raise InvalidArgument("url of PostgreSQL", "(not shown)", _ADVICE)
    return f"{parts.hostname or 'localhost'}{port}{parts.path}"


def checked_dsn(dsn: Any) -> str:
    """The address as it was given, if it is one. It is never shown: it may hold a password."""
    if not isinstance(dsn, str):
        raise InvalidArgument("url of PostgreSQL", "(not shown)", _ADVICE)
    address_of(dsn)
    return dsn


def name_parts(table: Any, what: str = "table") -> tuple[str, ...]:
    """The schema, if there is one, and the name of a table. Upper and lower case are as they are written.

    >>> name_parts("shop.orders"), name_parts("Orders")
    (('shop', 'orders'), ('Orders',))
    """
    parts = tuple(table.split(".")) if isinstance(table, str) else ()
    if not 1 <= len(parts) <= 2 or not all(parts) or "\0" in table:
        raise InvalidArgument(what, table, "Give the name of a table, with or without a schema before a dot.")
    return parts
