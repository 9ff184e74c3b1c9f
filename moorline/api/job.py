"""A job: sources, steps and sinks, checked as they are put together. Building one runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, overload

from moorline.api import foreign_names
from moorline.api.columns.streams import ColumnStream
from moorline.api.foreign_names import AnswersForeignNames
from moorline.api.functions.overrides import check_methods
from moorline.api.functions.source_function import SourceFunction
from moorline.api.generated_uids import GeneratedUids
from moorline.api.sources import ColumnSource, Source
from moorline.api.state.declarations import check_states
from moorline.api.state.rekey import Rekey
from moorline.api.state.states import declared_states
from moorline.api.streams import Stream, describe
from moorline.api.type_parameters import A
from moorline.api.watermarks import WatermarkStrategy
from moorline.errors import (
    DuplicateUid,
    FunctionNotShippable,
    InvalidArgument,
    KeyedStateWithoutKey,
    NothingToRun,
    ParallelismTooHigh,
    UnconnectedStream,
)
from moorline.model.graph import Graph, Input, Operator, OperatorKind, Partitioning
from moorline.model.key_groups import MAX_KEY_GROUPS, default_max_parallelism
from moorline.model.options import STEP_OPTIONS, check_options, checks_options
from moorline.model.wire import user_code

#: The options of a step beside its function.
OPTIONS = {"watermarks", "broadcast", "window", "batches", "rekey", "drop_states"}


@checks_options()
class Job(AnswersForeignNames):
    """A streaming job.

    >>> import moorline as mo
    >>> job = mo.Job("shout", parallelism=2)
    >>> words = job.source(mo.from_items(["a", "b"]), uid="words")
    >>> words.map(str.upper, uid="up").sink(mo.collect("out"), uid="out")
    >>> print(job)
    job 'shout', parallelism 2, 128 key groups
      words  source: Items             x2
      up     map: upper                x2  <- words (forward)
      out    sink: Collect             x2  <- up (forward)
    """

    _foreign_names = foreign_names.JOB

    def __init__(self, name: str, *, parallelism: int = 1, max_parallelism: int | None = None) -> None:
        if not isinstance(name, str) or not name or not all(c.isalnum() or c in "._-" for c in name) or name[0] in ".-":
            raise InvalidArgument("job name", name, "It names a folder: letters, digits, '.', '_' and '-'.")
        self.name = name
        self.parallelism = _check_parallelism("parallelism", parallelism)
        if max_parallelism is not None:
            _check_parallelism("max_parallelism", max_parallelism)
        self._max_parallelism = max_parallelism
        self._operators: dict[str, Operator] = {}
        #: Operators with a parallelism of their own; the others follow the job's.
        self._own_parallelism: set[str] = set()
        self._uids = GeneratedUids()

    @property
    def max_parallelism(self) -> int:
        """The number of key groups: what the user set, or what follows from the highest parallelism."""
        if self._max_parallelism is not None:
            return self._max_parallelism
        return default_max_parallelism(max([self.parallelism, *(o.parallelism for o in self._operators.values())]))

    @overload
    def source(
        self,
        source: ColumnSource,
        *,
        uid: str | None = ...,
        name: str | None = ...,
        parallelism: int | None = ...,
        watermarks: WatermarkStrategy | None = ...,
    ) -> ColumnStream: ...
    @overload
    def source(
        self,
        source: Source[A] | SourceFunction[A],
        *,
        uid: str | None = ...,
        name: str | None = ...,
        parallelism: int | None = ...,
        watermarks: WatermarkStrategy | None = ...,
    ) -> Stream[A]: ...
    @checks_options()
    def source(
        self,
        source: Source[Any] | SourceFunction[Any],
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        watermarks: WatermarkStrategy | None = None,
    ) -> Stream[Any]:
        """Begin a stream with the records of ``source``. ``watermarks`` are kept for each of its splits.

        A source that was given a schema, such as ``mo.read_files(..., schema=...)``, begins a stream of columns.
        """
        if not isinstance(source, (Source, SourceFunction)):
            raise InvalidArgument("source", source, "Give a Source, such as mo.from_items([...]).")
        if watermarks is not None and not isinstance(watermarks, WatermarkStrategy):
            raise InvalidArgument("watermarks", watermarks, "Give a WatermarkStrategy.")
        added = self._add("source", source, (), uid, name, parallelism, {"watermarks": watermarks})
        if isinstance(source, ColumnSource):
            return ColumnStream(self, ((added, None),), source.schema)
        return Stream(self, ((added, None),))

    def graph(self, parallelism: int | None = None, of_each: Mapping[str, int] | None = None) -> Graph:
        """The finished job as data, after the checks that need the whole of it.

        ``parallelism`` is for all operators that have none of their own, ``of_each`` for some of them by uid.
        """
        operators = self._operators
        if parallelism is not None:
            _check_parallelism("parallelism", parallelism)
            operators = {
                uid: o if uid in self._own_parallelism else replace(o, parallelism=parallelism)
                for uid, o in operators.items()
            }
        for uid, number in (of_each or {}).items():
            if uid not in operators:
                raise InvalidArgument("parallelism of", uid, f"The job has {', '.join(operators)}.")
            _check_parallelism(f"parallelism of {uid!r}", number)
            operators = {**operators, uid: replace(operators[uid], parallelism=number)}
        highest = max((o.parallelism for o in operators.values()), default=1)
        key_groups = self._max_parallelism or default_max_parallelism(highest)
        if not any(o.is_source for o in operators.values()):
            raise NothingToRun(self.name)
        read = {i.upstream for o in operators.values() for i in o.inputs}
        for operator in operators.values():
            if not operator.is_sink and operator.uid not in read:
                raise UnconnectedStream(operator.uid)
            if operator.parallelism > key_groups:
                raise ParallelismTooHigh(operator.uid, operator.parallelism, key_groups)
        return Graph(self.name, tuple(operators.values()), key_groups, self._max_parallelism is not None)

    def _add(
        self,
        kind: str,
        function: Any,
        inputs: tuple[Input, ...],
        uid: str | None,
        name: str | None,
        parallelism: int | None,
        options: dict[str, Any] | None = None,
    ) -> str:
        """Check an operator as far as that is possible alone, and keep it. Returns its uid."""
        name = name or describe(function)
        if uid is not None and (not isinstance(uid, str) or not uid or len(uid) > 100):
            raise InvalidArgument("uid", uid, "A uid is a text of 1 to 100 characters.")
        if uid in self._operators:
            raise DuplicateUid(uid)
        is_generated = uid is None
        proposal = self._uids.propose(kind, name, inputs, uid, self._operators)
        uid = proposal.uid
        has_its_own = parallelism is not None
        if parallelism is None:
            parallelism = self.parallelism
        _check_parallelism(f"parallelism of {uid!r}", parallelism)
        if self._max_parallelism is not None and parallelism > self._max_parallelism:
            raise ParallelismTooHigh(uid, parallelism, self._max_parallelism)
        checked = _checked_options(uid, options or {})
        operator = Operator(
            uid, name, OperatorKind(kind), parallelism, function, inputs, checked, is_generated, has_its_own
        )
        states = declared_states(function)
        if states and not operator.is_keyed:
            raise KeyedStateWithoutKey(uid, tuple(states))
        check_methods(function, f"operator {uid!r}")
        check_states(function, f"operator {uid!r}")
        _check_shippable(uid, function, inputs, operator.options)
        self._operators[uid] = operator
        self._uids.keep(proposal)
        if has_its_own:
            self._own_parallelism.add(uid)
        return uid

    def __str__(self) -> str:
        lines = [f"job {self.name!r}, parallelism {self.parallelism}, {self.max_parallelism} key groups"]
        width = max([len(uid) for uid in self._operators], default=0) + 2
        for o in self._operators.values():
            reads = ", ".join(map(str, o.inputs))
            what = f"{o.kind}: {o.name}"
            lines.append(f"  {o.uid:<{width}}{what:<24}  x{o.parallelism}" + (f"  <- {reads}" if reads else ""))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Job {self.name!r} with {len(self._operators)} operators>"


def _checked_options(uid: str, options: dict[str, Any]) -> dict[str, Any]:
    check_options(f"operator {uid!r}", options.keys() - OPTIONS, STEP_OPTIONS)
    if not isinstance(options.get("rekey"), (Rekey, type(None))):
        raise InvalidArgument("rekey", options["rekey"], "Give a mo.Rekey(...).")
    checked = {name: value for name, value in options.items() if value is not None}
    if "drop_states" in checked:
        names = checked["drop_states"]
        checked["drop_states"] = frozenset([names] if isinstance(names, str) else names)
    return checked


def _check_parallelism(what: str, parallelism: object) -> int:
    if not isinstance(parallelism, int) or isinstance(parallelism, bool) or not 1 <= parallelism <= MAX_KEY_GROUPS:
        raise InvalidArgument(what, parallelism, f"It is a whole number from 1 to {MAX_KEY_GROUPS}.")
    return parallelism


def _check_shippable(uid: str, function: Any, inputs: tuple[Input, ...], options: dict[str, Any]) -> None:
    try:
        user_code.dumps((function, options, [i.key for i in inputs if i.partitioning is Partitioning.HASH]))
    except Exception as error:  # whatever a user's object raises while it is pickled
        raise FunctionNotShippable(uid, f"{type(error).__name__}: {error}") from error
