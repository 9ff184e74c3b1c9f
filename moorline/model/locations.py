"""URLs with a slip in them, which would be taken for a local folder of that name."""

from __future__ import annotations

import re

_SCHEMES = r"s3a?|gs|az|azure|abfss?|adl|hdfs|file|memory|fsspec\+\w+"
_SLIP = re.compile(rf"({_SCHEMES}):/*([^/].*)", re.IGNORECASE)


def meant(path: str) -> str | None:
    """The URL that was probably meant by a path that is taken for a local one; None: it is a path.

    >>> meant("s3:/bucket/folder"), meant("S3://bucket"), meant("/data/s3:/x"), meant("data")
    ('s3://bucket/folder', 's3://bucket', None, None)
    """
    slip = _SLIP.match(path)
    return f"{slip[1].lower()}://{slip[2]}" if slip else None
