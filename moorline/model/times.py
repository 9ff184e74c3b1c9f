"""Points in time: milliseconds since 1970, as ints."""

from __future__ import annotations

#: Before any watermark.
MIN_TIME = -(1 << 63)
#: The last watermark of a stream that has ended: nothing is waited for any more.
MAX_TIME = (1 << 63) - 1
