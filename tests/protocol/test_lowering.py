"""From the graph a user wrote to subtasks in slots of stages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import moorline as mo
from moorline.model.graph import Graph, Input, Operator, Partitioning, Plan
from moorline.model.ids import SubtaskId
from moorline.protocol.lowering import lower, relay_slot

LATE = mo.OutputTag("late")


def job(parallelism: int = 2) -> mo.Job:
    return mo.Job("test", parallelism=parallelism)


def numbers(to: mo.Job, uid: str = "in", **options) -> mo.Stream:
    return to.source(mo.from_items([1, 2, 3]), uid=uid, **options)


def lowered(built: mo.Job) -> Plan:
    return lower(built.graph())


def told(plan: Plan) -> list[str]:
    """A plan in a few words: each vertex, and each link."""
    vertices = [f"{v.stage}: {' '.join(v.operators)} x{v.parallelism}" for v in plan.vertices]
    names = [v.operators[0] for v in plan.vertices]
    links = [
        f"{link.source_operator}{'#' + link.tag if link.tag else ''} -{link.partitioning.value}-> {names[link.target]}"
        for link in plan.links
    ]
    return vertices + links


# --- chaining ---------------------------------------------------------------------------------


def test_what_needs_no_exchange_is_one_vertex():
    j = job()
    numbers(j).map(str, uid="text").filter(bool, uid="some").sink(mo.discard(), uid="out")
    assert told(lowered(j)) == ["0: in text some out x2"]


def test_a_key_needs_an_exchange():
    j = job()
    numbers(j).map(str, uid="text").key_by(len).reduce(max, uid="longest").sink(mo.discard(), uid="out")
    assert told(lowered(j)) == ["0: in text x2", "1: longest out x2", "text -hash-> longest"]


def test_rebalance_needs_an_exchange():
    j = job()
    numbers(j).rebalance().map(str, uid="text").sink(mo.discard(), uid="out")
    assert told(lowered(j)) == ["0: in x2", "1: text out x2", "in -rebalance-> text"]


def test_another_parallelism_needs_an_exchange_and_then_forward_means_rebalance():
    j = job()
    numbers(j, parallelism=1).map(str, uid="text").sink(mo.discard(), uid="out", parallelism=1)
    assert told(lowered(j)) == [
        "0: in x1",
        "1: text x2",
        "2: out x1",
        "in -rebalance-> text",
        "text -rebalance-> out",
    ]


def test_two_readers_of_one_operator_are_both_chained_to_it():
    j = job()
    stream = numbers(j)
    stream.map(str, uid="a").sink(mo.discard(), uid="out-a")
    stream.map(int, uid="b").sink(mo.discard(), uid="out-b")
    assert told(lowered(j)) == ["0: in a out-a b out-b x2"]


def test_a_side_output_is_chained_like_the_main_one():
    j = job()
    stream = numbers(j).process(lambda value, ctx: [value], uid="parse")
    stream.sink(mo.discard(), uid="out")
    stream.side_output(LATE).sink(mo.discard(), uid="late")
    assert told(lowered(j)) == ["0: in parse out late x2"]


def test_a_side_output_can_have_a_key_of_its_own():
    j = job()
    stream = numbers(j).process(lambda value, ctx: [value], uid="parse")
    stream.sink(mo.discard(), uid="out")
    stream.side_output(LATE).key_by(len).reduce(max, uid="longest").sink(mo.discard(), uid="late")
    assert told(lowered(j)) == ["0: in parse out x2", "1: longest late x2", "parse#late -hash-> longest"]


def test_a_union_is_a_vertex_of_its_own_with_a_link_from_each():
    j = job()
    numbers(j, "a").union(numbers(j, "b"), numbers(j, "c", parallelism=1)).map(str, uid="all").sink(
        mo.discard(), uid="out"
    )
    assert told(lowered(j)) == [
        "0: a x2",
        "0: b x2",
        "0: c x1",
        "1: all out x2",
        "a -forward-> all",
        "b -forward-> all",
        "c -rebalance-> all",
    ]


def test_a_union_of_a_stream_with_itself_has_two_links():
    j = job()
    stream = numbers(j)
    stream.union(stream).sink(mo.discard(), uid="out")
    assert told(lowered(j)) == ["0: in x2", "1: out x2", "in -forward-> out", "in -forward-> out"]


# --- stages -----------------------------------------------------------------------------------


def test_a_source_stands_right_before_its_first_reader():
    j = job(1)
    first = numbers(j, "first").key_by(abs).reduce(max, uid="r1").key_by(abs).reduce(max, uid="r2")
    first.union(numbers(j, "second")).sink(mo.discard(), uid="out")
    plan = lowered(j)
    assert told(plan)[:5] == ["0: first x1", "1: r1 x1", "2: r2 x1", "2: second x1", "3: out x1"]
    assert plan.widths == (1, 1, 2, 1)


def test_an_operator_read_by_two_stages_stands_before_the_nearer_one():
    j = job(1)
    stream = numbers(j)
    far = stream.key_by(abs).reduce(max, uid="r1").key_by(abs).reduce(max, uid="r2")
    far.union(stream).sink(mo.discard(), uid="out")
    plan = lowered(j)
    assert told(plan)[:4] == ["0: in x1", "1: r1 x1", "2: r2 x1", "3: out x1"]
    assert told(plan)[-1] == "in -forward-> out"


def test_slots_of_a_stage_are_dealt_out_in_the_order_of_the_vertices():
    j = job(2)
    numbers(j, "a", parallelism=3).union(numbers(j, "b")).sink(mo.discard(), uid="out")
    plan = lowered(j)
    assert plan.widths == (5, 2)
    assert [plan.at(0, slot) for slot in range(5)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert plan.slot(SubtaskId(1, 1)) == (0, 4)
    with pytest.raises(LookupError, match="slot 5 of stage 0"):
        plan.at(0, 5)


def test_two_jobs_in_one_run_side_by_side():
    j = job(1)
    numbers(j, "a").sink(mo.discard(), uid="out-a")
    numbers(j, "b").key_by(abs).reduce(max, uid="r").sink(mo.discard(), uid="out-b")
    assert told(lowered(j))[:3] == ["0: a out-a x1", "0: b x1", "1: r out-b x1"]


# --- any graph --------------------------------------------------------------------------------


@st.composite
def graphs(draw) -> Graph:
    operators: list[Operator] = []
    for n in range(draw(st.integers(1, 9))):
        upstream = [o.uid for o in operators]
        count = draw(st.integers(0, min(3, len(upstream)))) if upstream else 0
        partitioning = draw(st.sampled_from(Partitioning))
        origins = [draw(st.sampled_from(upstream)) for _ in range(count)]
        inputs = tuple(Input(u, draw(st.sampled_from([None, "tag"])), partitioning, abs) for u in origins)
        kind = "process" if inputs else "source"
        operators.append(Operator(f"op{n}", f"op{n}", kind, draw(st.integers(1, 4)), None, inputs))
    return Graph("any", tuple(operators), 128)


@given(graphs())
def test_every_operator_is_in_exactly_one_vertex(graph):
    plan = lower(graph)
    assert sorted(uid for v in plan.vertices for uid in v.operators) == sorted(graph.by_uid)
    assert [v.id for v in plan.vertices] == list(range(len(plan.vertices)))
    for vertex in plan.vertices:
        assert {graph.by_uid[uid].parallelism for uid in vertex.operators} == {vertex.parallelism}


@given(graphs())
def test_within_a_vertex_only_the_root_reads_from_outside(graph):
    plan = lower(graph)
    for vertex in plan.vertices:
        for position, uid in enumerate(vertex.operators):
            if position:
                (only,) = graph.by_uid[uid].inputs
                assert only.upstream in vertex.operators[:position]
                assert only.partitioning is Partitioning.FORWARD
    links_in = {v.id: [link for link in plan.links if link.target == v.id] for v in plan.vertices}
    for vertex in plan.vertices:
        wanted = [(i.upstream, i.tag) for i in graph.by_uid[vertex.operators[0]].inputs]
        assert [(link.source_operator, link.tag) for link in links_in[vertex.id]] == wanted


@given(graphs())
def test_every_link_leads_at_least_one_stage_forward(graph):
    plan = lower(graph)
    for link in plan.links:
        assert plan.vertices[link.source].stage < plan.vertices[link.target].stage
        if link.partitioning is Partitioning.FORWARD:
            assert plan.vertices[link.source].parallelism == plan.vertices[link.target].parallelism


@given(graphs())
def test_no_stage_is_empty_and_every_slot_has_its_subtask(graph):
    plan = lower(graph)
    assert all(plan.widths)
    seen = [plan.at(stage, slot) for stage, width in enumerate(plan.widths) for slot in range(width)]
    assert sorted(seen) == sorted(plan.subtasks())
    for subtask in plan.subtasks():
        assert plan.at(*plan.slot(subtask)) == subtask


@given(graphs())
def test_a_vertex_that_is_read_stands_right_before_its_first_reader(graph):
    plan = lower(graph)
    for vertex in plan.vertices:
        readers = [plan.vertices[link.target].stage for link in plan.links if link.source == vertex.id]
        if readers:
            assert vertex.stage == min(readers) - 1


@given(graphs())
def test_sources_are_found_again(graph):
    plan = lower(graph)
    expected = [
        SubtaskId(v.id, i)
        for v in plan.vertices
        for i in range(v.parallelism)
        if not graph.by_uid[v.operators[0]].inputs
    ]
    assert list(plan.source_subtasks()) == expected


@given(graphs())
def test_every_channel_out_is_a_channel_in(graph):
    plan = lower(graph)
    incoming = {s: plan.channels_into(s) for s in plan.subtasks()}
    for link in plan.links:
        for sender in range(plan.vertices[link.source].parallelism):
            receivers = [s.index for s in incoming if s.vertex == link.target and (link.id, sender) in incoming[s]]
            if link.partitioning is Partitioning.FORWARD:
                assert receivers == [sender]
            else:
                assert receivers == list(range(plan.vertices[link.target].parallelism))
    assert all(len(set(channels)) == len(channels) for channels in incoming.values())


@given(st.lists(st.integers(1, 7), min_size=2, max_size=6), st.data())
def test_a_frame_for_a_later_stage_takes_one_way_only_so_its_channel_stays_in_order(widths, data):
    sender = data.draw(st.integers(0, widths[0] - 1))
    target = data.draw(st.integers(0, widths[-1] - 1))

    def way() -> list[int]:
        slots = [sender]
        for width in widths[1:-1]:
            slots.append(relay_slot(slots[-1], target, width))
        return [*slots, target]

    assert way() == way()
    assert all(0 <= slot < width for slot, width in zip(way(), widths, strict=True))


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_relays_share_the_work(width):
    used = {relay_slot(sender, target, width) for sender in range(width) for target in range(width)}
    assert used == set(range(width))
