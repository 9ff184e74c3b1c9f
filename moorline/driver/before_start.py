"""Checks by a job's sources and sinks before anything is started: a wrong path is refused here, not in a worker."""

from __future__ import annotations

from moorline.api.sinks import Sink
from moorline.api.sources import Source
from moorline.errors import EndUnusable, MoorlineError
from moorline.model.graph import Graph


def check_ends(graph: Graph) -> None:
    """Have every source and sink check itself. Raises the first error."""
    for operator in graph.operators:
        if isinstance(operator.function, (Source, Sink)):
            try:
                operator.function.check()
            except MoorlineError:
                raise
            except Exception as error:  # of a connector of the user's
                raise EndUnusable(operator.kind, operator.uid, f"{type(error).__name__}: {error}") from error
