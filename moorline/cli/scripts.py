"""Finding the job in a user's script.

    moorline run job.py           the variable ``job``, or what ``build()`` returns
    moorline run job.py:orders    the variable or function of that name

The script is executed as ``__main__``, because what is defined in it has to travel to workers as if it had been
started by itself. But it is not to start anything: what stands under ``if __name__ == "__main__":`` is left out, and
``mo.run`` or ``mo.start`` anywhere else in it is an error.
"""

from __future__ import annotations

import ast
import sys
import types
from pathlib import Path
from typing import Any

from moorline.api.functions.loading import loading
from moorline.api.job import Job
from moorline.errors import InvalidArgument

#: Looked for in this order.
_NAMES = ("job", "build")


def load_job(where: str) -> Job:
    """The job in ``script.py`` or ``script.py:name``.

    Raises :class:`InvalidArgument`, or :class:`StartedWhileLoading` if the script starts a job by itself.
    """
    path, name = _split(where)
    if not path.is_file():
        raise InvalidArgument("script", str(path), "There is no such file.")
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        raise InvalidArgument("script", str(path), f"It is no Python that can be read: {error}.") from error
    tree.body = [kept for node in tree.body for kept in _without_guard(node)]
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"], sys.argv = module, [str(path)]
    sys.path.insert(0, str(path.resolve().parent))
    with loading(str(path)):
        exec(compile(tree, str(path), "exec"), vars(module))
        return _found(vars(module), path, name)


def _split(where: str) -> tuple[Path, str | None]:
    path, colon, name = where.rpartition(":")
    return (Path(path), name) if colon and name.isidentifier() and path else (Path(where), None)


def _without_guard(node: ast.stmt) -> list[ast.stmt]:
    """The statement; of ``if __name__ == "__main__":`` what stands under its ``else``."""
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("__name__ == '__main__'", "'__main__' == __name__"):
        return node.orelse
    return [node]


def _found(names: dict[str, Any], path: Path, name: str | None) -> Job:
    for candidate in (name,) if name else _NAMES:
        value = names.get(candidate or "")
        if callable(value) and not isinstance(value, type):
            value = value()
        if isinstance(value, Job):
            return value
        if value is not None:
            advice = f"In {path} it is a {type(value).__name__}; a mo.Job, or a function that returns one, is needed."
            raise InvalidArgument("job", candidate, advice)
    jobs = [n for n, v in names.items() if isinstance(v, Job)]
    which = f" It has {', '.join(jobs)}: write {path}:{jobs[0]}." if jobs else ""
    raise InvalidArgument("job", name or "job, build()", f"{path} has nothing of that name.{which}")
