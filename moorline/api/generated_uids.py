"""The id of an operator that was given none.

State is found again by uid, so an id that we make must stay what it is while the job is changed elsewhere. It is made
of what hardly changes, and of nothing that belongs to other operators but the names that a user gave by hand:

    process-Count-after-words-2
    |       |           |     |
    kind    own name    |     the second one that is alike so far, in the order they were added
                        uids of the sources it descends from, if they were given one; "#tag" for side outputs

What changes it: its own kind or name; another set of named sources above it; a ``uid`` given to such a source (unless
it is the one that was made for it); one that is alike (same kind, name and sources) added before it or taken away.
What does not: operators of another kind or name added, removed or moved anywhere; functions, names and uids of other
operators that are no sources; parallelism; chaining. Those that have a uid are counted as well, so that giving one
operator a uid leaves the others as they are. ``api/job.py`` asks.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from moorline.api.functions.base import Function
from moorline.api.state.operator_state import CheckpointedFunction, ListCheckpointed
from moorline.api.state.states import declared_states
from moorline.model.graph import Graph, Input, Operator

#: So much of a name, and of the sources' uids, is written out; longer ones get a hash.
_READABLE = 40


@dataclass(frozen=True)
class Proposal:
    """The uid of an operator that is about to be added."""

    uid: str
    #: What those that are alike have in common.
    stem: str
    #: The named sources it descends from, with the side outputs on the way; the empty text for one without a name.
    after: frozenset[str]


class GeneratedUids:
    """Makes ids for the operators of one job, in the order they are added."""

    def __init__(self) -> None:
        self._alike: Counter[str] = Counter()
        self._after: dict[str, frozenset[str]] = {}

    def propose(
        self, kind: str, name: str, inputs: tuple[Input, ...], uid: str | None, taken: Collection[str]
    ) -> Proposal:
        """The uid of the next operator: the one it was given, or else one that is not taken."""
        after = self._sources([(edge.upstream, edge.tag) for edge in inputs])
        stem = f"{kind}-{_short(name)}" + (f"-after-{_short('+'.join(sorted(after)))}" if after else "")
        number = self._alike[stem] + 1
        made = _numbered(stem, number)
        chosen = made if uid is None else uid
        while uid is None and chosen in taken:
            number += 1
            chosen = _numbered(stem, number)
        if kind == "source":
            # One that is given the uid it had anyway changes nothing for those after it.
            after = frozenset({"" if chosen == made else chosen})
        return Proposal(chosen, stem, after or frozenset({""}))

    def alias(self, entrance: str, origins: Collection[tuple[str, str | None]]) -> None:
        """Let ``entrance`` stand for these outputs of operators: in a loop it is not known yet who reads them."""
        self._after[entrance] = self._sources(origins) or frozenset({""})

    def _sources(self, origins: Collection[tuple[str, str | None]]) -> frozenset[str]:
        sources = [(tag, source) for upstream, tag in origins for source in self._after[upstream]]
        return frozenset(source if tag is None else f"{source}#{tag}" for tag, source in sources) - {""}

    def keep(self, proposal: Proposal) -> None:
        """The operator has been added."""
        self._alike[proposal.stem] += 1
        self._after[proposal.uid] = proposal.after


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"


def _short(text: str) -> str:
    readable = re.sub(r"[^\w.+#-]+", "_", text, flags=re.ASCII)
    if readable == text and len(text) <= _READABLE:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{readable[: _READABLE - 9]}-{digest}"


def keeps_state(operator: Operator) -> bool:
    """Could a snapshot hold something of this operator?"""
    function = operator.function
    if operator.kind in ("source", "sink", "window", "broadcast_process") or any(i.feedback for i in operator.inputs):
        return True
    if declared_states(function) or isinstance(function, (CheckpointedFunction, ListCheckpointed)):
        return True
    return operator.is_keyed and isinstance(function, Function) and type(function).open is not Function.open


def advice_on_uids(graph: Graph) -> str | None:
    """For people: which operators with state have no uid of their own, and what to do. None if all have one."""
    without = [o for o in graph.operators if o.has_generated_uid and keeps_state(o)]
    if not without:
        return None
    named = ", ".join(f"uid={o.uid!r} for the {o.kind} {o.name}" for o in without)
    return (
        f"state is found again by uid, and {len(without)} operators with state have none of their own, so changes of "
        f"the job may part them from it. Give them uids; these keep what snapshots have by now: {named}"
    )
