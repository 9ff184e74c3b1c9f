"""What goes round a loop, in snapshots: plain data unless the user says otherwise, and for a job with that loop."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

import moorline as mo
from moorline.errors import InFlightNowhere, LoopRecordNotPlain
from moorline.model.ids import Attempt, CheckpointId, SubtaskId
from moorline.model.manifest import InFlightHandle, Manifest, OperatorEntry, OperatorHandles
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.elements import BATCH, HEAD, pack_records, unpack_part
from moorline.protocol.lowering import lower
from moorline.protocol.redistribution import redistribute
from moorline.state.types import plain
from moorline.subtask.snapshot import in_flight
from moorline.subtask.spill_queue import FrameCopy


@dataclass
class Own:
    number: int


def graph(parallelism=2, **options):
    job = mo.Job("loop", parallelism=parallelism, max_parallelism=8)

    def once(loop):
        stepped = loop.map(lambda n: n, uid="step")
        return stepped, stepped

    numbers = job.source(mo.from_items([1]), uid="numbers")
    numbers.key_by(lambda n: n).iterate(once, **options).sink(mo.collect("out"), uid="out")
    return job.graph()


def waiting(record, unaligned=False, **options):
    plan = lower(graph(**options))
    (origin, _) = in_flight.feedback_origins(plan, SubtaskId(1, 0), unaligned)
    assert origin.loop
    return in_flight.Waiting(origin, [FrameCopy([HEAD.pack(BATCH, 1, 0, 0, 0, 0) + pack_records([record])])])


def test_plain_data_is_stored_as_data():
    encoded, records, pickled = waiting((1, "a")).encode()
    assert (records, pickled) == (1, False)
    assert plain.decode(encoded[0]) == [None, [(1, "a")]]


def test_other_objects_are_an_error_that_says_what_to_do():
    with pytest.raises(LoopRecordNotPlain) as refused:
        waiting(Own(1)).encode()
    assert (refused.value.uid, refused.value.upstream) == ("step", "step")
    assert "pickled=True" in str(refused.value)


@pytest.mark.parametrize("options", [{"pickled": True}, {"unaligned": True}])
def test_they_are_pickled_if_the_user_says_so(options):
    assert waiting(Own(1), **options).encode()[1:] == (1, True)


def snapshot(records, parallelism):
    inline = [plain.encode([None, records])]
    handle = InFlightHandle("step", None, 0, "hash", 0, 8, len(records), 1, inline=inline, loop=True)
    subtasks = [OperatorHandles("step", in_flight=[handle])]
    subtasks += [OperatorHandles("step") for _ in range(parallelism - 1)]
    return Manifest("loop", 1, 1, 0, [OperatorEntry("step", "step", parallelism, 8, subtasks)])


@pytest.mark.parametrize("parallelism", [1, 2, 3, 8])
def test_at_any_parallelism_each_record_comes_back_to_the_owner_of_its_key_alone(parallelism):
    plan = lower(graph(parallelism))
    restores = redistribute(snapshot(list(range(40)), 1), plan, "it")
    deployment = Deployment(plan, Attempt(2), CheckpointId(1), restores)
    found = []
    for index in range(parallelism):
        mine = in_flight.restored(deployment, SubtaskId(1, index), None)
        found += [n for _, frames in mine for frame in frames for n in unpack_part(frame, HEAD.size)[1]]
    assert sorted(found) == list(range(40))


def test_a_job_without_the_loop_cannot_go_on_with_what_was_in_it():
    plan = lower(graph())
    step = plan.graph.by_uid["step"]
    straight = replace(step, inputs=tuple(i for i in step.inputs if not i.feedback))
    operators = tuple(straight if o.uid == "step" else o for o in plan.graph.operators)
    without = lower(replace(plan.graph, operators=operators))
    with pytest.raises(InFlightNowhere, match="let the job run until its loop is empty"):
        redistribute(snapshot([1], 2), without, "the savepoint")
