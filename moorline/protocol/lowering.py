"""From a graph of operators to subtasks in slots of stages.

Spark joins the stages of a pipelined job into one chain, so every vertex is given a level:

- Operators that need no exchange between them (one input, forward, equal parallelism) share a vertex.
- A vertex comes at least one stage after all that it reads from. One that none reads from sits as early as it can
  and everything else as late as it can: a source stands right before its first reader, and no frame is relayed
  without need.
- A stage's slots hold the subtasks of all vertices on its level, in the order of the vertices.
- A link that leads back, closing a loop, has no say in this: what it carries does not go through Spark's exchange.

``spark/cluster.py`` and ``testing/simulation/simulator.py`` call :func:`lower`; both run the plan it returns.
"""

from __future__ import annotations

from moorline.model.graph import Graph, Link, Operator, Partitioning, Plan, Vertex


def lower(graph: Graph) -> Plan:
    """The physical plan of ``graph``."""
    root_of = _chains(graph)
    members: dict[str, list[str]] = {}
    for operator in graph.operators:
        members.setdefault(root_of[operator.uid], []).append(operator.uid)
    number = {root: n for n, root in enumerate(members)}
    links = tuple(_links(graph, root_of, number))
    stages = _stages(len(members), links)

    widths = [0] * (max(stages) + 1)
    vertices = []
    for root, uids in members.items():
        stage, parallelism = stages[number[root]], graph.by_uid[root].parallelism
        vertices.append(Vertex(number[root], tuple(uids), parallelism, stage, widths[stage]))
        widths[stage] += parallelism
    return Plan(graph, tuple(vertices), links, tuple(widths))


def relay_slot(sender_slot: int, target_slot: int, width: int) -> int:
    """The slot that passes a frame on through a stage between. One per channel: order must be kept."""
    return (sender_slot + target_slot) % width


def relays(plan: Plan) -> set[tuple[int, int]]:
    """The places, as stage and slot, that pass frames on which are not for them."""
    places: set[tuple[int, int]] = set()
    for link in plan.links:
        source, target = plan.vertices[link.source], plan.vertices[link.target]
        for sender in range(source.parallelism) if target.stage > source.stage + 1 else ():
            forward = link.partitioning is Partitioning.FORWARD
            for receiver in [sender] if forward else range(target.parallelism):
                slot = source.first_slot + sender
                for stage in range(source.stage + 1, target.stage):
                    slot = relay_slot(slot, target.first_slot + receiver, plan.widths[stage])
                    places.add((stage, slot))
    return places


def _chains(graph: Graph) -> dict[str, str]:
    """For each operator the root of the vertex it belongs to."""
    root_of: dict[str, str] = {}
    for operator in graph.operators:
        upstream = _chained_to(graph, operator)
        root_of[operator.uid] = root_of[upstream] if upstream else operator.uid
    return root_of


def _chained_to(graph: Graph, operator: Operator) -> str | None:
    if len(operator.inputs) != 1:
        return None
    (only,) = operator.inputs
    same_width = graph.by_uid[only.upstream].parallelism == operator.parallelism
    return only.upstream if only.partitioning is Partitioning.FORWARD and same_width else None


def _links(graph: Graph, root_of: dict[str, str], number: dict[str, int]) -> list[Link]:
    links: list[Link] = []
    for operator in graph.operators:
        if root_of[operator.uid] != operator.uid:
            continue
        for place, edge in enumerate(operator.inputs):
            partitioning = edge.partitioning
            same_width = graph.by_uid[edge.upstream].parallelism == operator.parallelism
            if partitioning is Partitioning.FORWARD and not same_width:
                partitioning = Partitioning.REBALANCE
            source = number[root_of[edge.upstream]]
            links.append(
                Link(
                    len(links),
                    edge.upstream,
                    edge.tag,
                    source,
                    number[operator.uid],
                    partitioning,
                    place,
                    edge.feedback,
                ),
            )
    return links


def _stages(count: int, links: tuple[Link, ...]) -> list[int]:
    # Vertices are numbered in the order of their operators, so a link always leads to a higher number, or back.
    links = tuple(link for link in links if not link.feedback)
    earliest = [0] * count
    for link in sorted(links, key=lambda link: link.target):
        earliest[link.target] = max(earliest[link.target], earliest[link.source] + 1)
    stages = list(earliest)
    for vertex in reversed(range(count)):
        readers = [stages[link.target] for link in links if link.source == vertex]
        if readers:
            stages[vertex] = min(readers) - 1
    return stages
