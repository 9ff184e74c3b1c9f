"""Is a script just being loaded for the job that it defines? Then nothing starts: ``mo.run`` and ``mo.start`` refuse.

``cli/scripts.py`` executes a user's script to find its job, and promises that this runs nothing; ``spark/run.py``
asks here before it does anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from moorline.errors import StartedWhileLoading

_script = ""


@contextmanager
def loading(script: str) -> Iterator[None]:
    """For as long as ``script`` is executed to find its job.

    >>> with loading("job.py"):
    ...     refuse_while_loading("mo.run")
    Traceback (most recent call last):
    ...
    moorline.errors.StartedWhileLoading: ...
    """
    global _script
    before, _script = _script, script
    try:
        yield
    finally:
        _script = before


def refuse_while_loading(call: str) -> None:
    """Raises :class:`StartedWhileLoading` if a script is being loaded."""
    if _script:
        raise StartedWhileLoading(_script, call)
