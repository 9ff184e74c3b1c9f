"""Live queries on the driver: routed to the owner of the key, refused while nobody can answer, never in the way."""

from __future__ import annotations

import threading

import pytest
from driver_worlds import World, small_job
from waiting import PATIENCE, eventually

from moorline.driver.loop import DriverLoop
from moorline.driver.queries.pending import MOST_WAITING, LiveQuery, QueryRefused, route
from moorline.driver.queries.service import QueryService
from moorline.errors import InvalidArgument, QueryFailed, QueryUnavailable
from moorline.model import keys
from moorline.model.key_groups import owned
from moorline.model.type_tree.tree import INT
from moorline.model.wire.messages import Answer, Progress, Query, Running
from moorline.storage.stores.memory import MemoryStore


def asked(world: World, key: object = 1, uid: str = "count") -> list[Answer | QueryRefused]:
    told: list[Answer | QueryRefused] = []
    world.supervision.query(LiveQuery(uid, "seen", keys.encode(key), told.append))
    return told


def test_a_query_goes_to_the_one_subtask_that_owns_the_key():
    world = World().run()
    plan = world.deployment.plan
    for key in range(50):
        asked(world, key)
        ((subtask, query),) = world.cluster.take(Query)
        assert plan.vertices[subtask.vertex].operators[0] == "count"
        group = keys.key_group(key, plan.graph.max_parallelism)
        assert group in owned(subtask.index, 2, plan.graph.max_parallelism)
        assert query.key == keys.encode(key)
        assert subtask == route(plan, "count", query.key)
        world.report(subtask, Answer(id=query.id))


def test_an_answer_reaches_whoever_asked_once():
    world = World().run()
    first, second = asked(world), asked(world)
    (subtask, query), (_, other) = world.cluster.take(Query)
    answer = Answer(id=other.id, kind="value", stored_type=INT)
    world.report(subtask, answer)
    world.report(subtask, answer)
    world.report(subtask, Answer(id=999))
    assert (first, second) == ([], [answer])
    world.report(subtask, Answer(id=query.id))
    assert len(first) == 1


@pytest.mark.parametrize("when", ["before the start", "starting", "failing", "restarting"])
def test_a_query_is_refused_while_the_job_is_not_at_work(when):
    world = World(store=MemoryStore())
    if when != "before the start":
        world.start()
    if when in ("failing", "restarting"):
        world.all_report(Running(pid=1))
        world.supervision.line_lost(world.deployment.attempt, world.subtasks[0])
    if when == "restarting":
        world.end_attempt(error="lost")
    (refused,) = asked(world)
    assert isinstance(refused, QueryRefused)
    assert not world.cluster.take(Query)


def test_those_who_wait_are_told_when_the_attempt_ends():
    world = World(store=MemoryStore()).run()
    told = asked(world)
    world.supervision.line_lost(world.deployment.attempt, world.subtasks[0])
    world.end_attempt(error="lost")
    assert told == [QueryRefused("attempt 1 has ended")]


def test_only_so_many_wait_at_a_time_and_those_who_gave_up_do_not_count():
    world = World().run()
    waiting = [LiveQuery("count", "seen", keys.encode(n), lambda outcome: None) for n in range(MOST_WAITING)]
    for query in waiting:
        world.supervision.query(query)
    (refused,) = asked(world)
    assert isinstance(refused, QueryRefused)
    waiting[0].is_given_up = True
    assert asked(world) == []


def test_a_query_counts_as_a_sign_of_life_like_any_report():
    world = World(heartbeat_timeout="5s").run()
    for _ in range(3):
        world.pass_time(4_000)
        world.all_report(Progress(records_in=1, records_out=1))
    assert world.status.value == "running"


# --- whoever waits ------------------------------------------------------------------------------


class ByHand(DriverLoop):
    """A loop that a test drives by hand: what is posted is done at once."""

    def __init__(self, world: World) -> None:
        super().__init__("small")
        self.supervision, self.lock = world.supervision, threading.Lock()

    def post(self, step):
        with self.lock:
            step(self.supervision, 0)


def service(world: World) -> QueryService:
    return QueryService(small_job().graph(), ByHand(world), None)


def test_an_operator_that_the_job_has_not_is_an_error_at_once():
    for uid in ("cuont", "numbers"):
        with pytest.raises(QueryFailed, match="those with one are: count"):
            service(World().run()).query(uid, "seen", keys.encode(1), "live", 1_000)
    with pytest.raises(InvalidArgument, match="'live' or 'checkpoint'"):
        service(World().run()).query("count", "seen", keys.encode(1), "dead", 1_000)


def test_a_subtask_that_does_not_answer_is_waited_for_so_long_and_no_longer():
    with pytest.raises(QueryUnavailable, match="busy with a batch"):
        service(World().run()).query("count", "seen", keys.encode(1), "live", 50)


def test_a_job_that_does_not_run_in_time_says_what_it_is_doing():
    with pytest.raises(QueryUnavailable, match="the job is starting"):
        service(World().start()).query("count", "seen", keys.encode(1), "live", 50)


def test_a_job_that_is_over_has_no_live_state():
    world = World().run()
    world.finish()
    with pytest.raises(QueryFailed, match="the job is finished"):
        service(world).query("count", "seen", keys.encode(1), "live", 5_000)


def test_a_job_without_checkpoints_says_so():
    with pytest.raises(QueryFailed, match="takes no checkpoints"):
        service(World().run()).query("count", "seen", keys.encode(1), "checkpoint", 5_000)


def test_a_job_that_is_restarting_is_asked_again_when_it_runs():
    world = World().start()
    found = []
    asker = service(world)
    thread = threading.Thread(
        target=lambda: found.append(asker.query("count", "seen", keys.encode(1), "live", 20_000)), daemon=True
    )
    thread.start()
    with asker._loop.lock:
        world.all_report(Running(pid=1))
    ((subtask, query),) = eventually(lambda: world.cluster.take(Query), "the subtask is asked")
    with asker._loop.lock:
        world.report(subtask, Answer(id=query.id, kind="value", stored_type=INT))
    thread.join(PATIENCE)
    assert found == [None]
