"""The names of a job and of its stages in Spark's own pages.

    job, SQL query and stages    job payments, attempt 3: numbers (4 subtasks) | count > out (2 subtasks)
                                 with a console, the address of its page before that
    a stage in the query's plan  the function that it runs: ``payments: count > out``

Spark's words are there already: task 3 of a stage is what stands in slot 3 of it (``model/graph.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from moorline.model.graph import Plan

#: Characters of a description. Spark keeps it for every job and stage.
LONGEST = 1_000


def stage_names(plan: Plan) -> list[str]:
    """Of each stage the uids of its operators: ``>`` within a chain, ``+`` between two chains beside each other."""
    return [
        " + ".join(" > ".join(vertex.operators) for vertex in plan.vertices if vertex.stage == stage)
        for stage in range(len(plan.widths))
    ]


def description(job: str, attempt: int, plan: Plan, page: str = "") -> str:
    """One line on an attempt. ``page``: the address of the job's own page, as text.

    Spark makes links of nothing but paths of its own, and shows all else as it is written.
    """
    stages = [f"{name} ({width} subtask{'s' * (width != 1)})" for name, width in zip(stage_names(plan), plan.widths)]
    text = f"job {job}, attempt {attempt}{page and f', page {page}'}: {' | '.join(stages)}"
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def named(function: Callable[..., Any], name: str, *arguments: Any) -> Callable[..., Any]:
    """The function with its first arguments filled in, under a name for Spark's plan."""
    filled = functools.partial(function, *arguments)
    filled.__name__ = name[:LONGEST]  # type: ignore[attr-defined]  # a partial takes any attribute
    return filled
