"""The options of steps and states, as a type checker sees them: a misspelt one is found while it is written.

At run time ``@checks_options`` refuses it, where the step or state is declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from moorline.api.state.external import ExternalStore
    from moorline.api.state.rekey import Rekey
    from moorline.api.state.ttl import StateTtlConfig
    from moorline.model.durations import Duration


class StepOptions(TypedDict, total=False):
    """Options of every step.

    >>> import moorline as mo
    >>> wide: StepOptions = {"uid": "upper", "parallelism": 4}
    >>> mo.Job("shout").source(mo.from_items(["a"])).map(str.upper, **wide)
    <Stream of job 'shout' from 'upper'>
    """

    #: By which the state of the step is found again.
    uid: str | None
    #: For people.
    name: str | None
    #: The number of its subtasks; the job's if it is not given.
    parallelism: int | None
    #: Other keys for restored state.
    rekey: Rekey | None
    #: States that a snapshot has and the function no longer wants.
    drop_states: str | Iterable[str]


class StateOptions(TypedDict, total=False):
    """Options of every state.

    >>> import moorline as mo
    >>> kept: StateOptions = {"ttl": "1h"}
    >>> mo.ValueState(int, name="last", **kept).descriptor.ttl.length
    '1h'
    """

    #: How long an entry is kept that is not touched; a length will do.
    ttl: StateTtlConfig | Duration | None
    #: Makes a value of today's type from one that was stored with another type.
    migrate: Callable[[Any], object] | None
    #: Where it is kept instead of in the worker, such as ``mo.postgres_state(...)``.
    store: ExternalStore | None
