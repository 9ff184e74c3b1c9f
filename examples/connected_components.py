"""Which places are connected? Roads come in one by one, and the smallest name of each component spreads in a loop.

State: of each place its neighbours, and the smallest name that has reached it. A place that learns of a smaller name
tells all its neighbours: it sends them messages, which go back to the beginning of the loop, by the neighbour's key.
When no message is on its way any more, everybody knows.
"""

import moorline as mo

ROADS = [("b", "c"), ("x", "y"), ("c", "d"), ("a", "b"), ("y", "z"), ("e", "e"), ("d", "a")]


class Spread(mo.KeyedProcessFunction):
    """Emits a place and its component whenever that changes; sends messages to the side."""

    messages = mo.OutputTag("messages")
    neighbours: mo.MapState[str, bool] = mo.MapState(str, bool)
    component = mo.ValueState(str)

    def process_element(self, value, ctx):
        place, kind, other = value
        if kind == "road":
            self.neighbours.put(other, True)
            # It learns what we know, or else that we exist.
            ctx.output(self.messages, (other, "component", self.component.value() or place))
            other = place
        known = self.component.value()
        if known is None or other < known:
            self.component.update(other)
            yield place, other
            for neighbour in self.neighbours:
                ctx.output(self.messages, (neighbour, "component", other))


def spread(loop):
    """One round: what goes back, and what comes out."""
    changes = loop.process(Spread(), uid="spread")
    return changes.side_output(Spread.messages), changes


def build(roads=ROADS) -> mo.Job:
    """Pairs of places in; each place with its component out, the last one counts."""
    job = mo.Job("components", parallelism=2)
    (
        job.source(mo.from_items(roads), uid="roads")
        .flat_map(lambda road: [(road[0], "road", road[1]), (road[1], "road", road[0])], uid="both-ways")
        .key_by(lambda message: message[0])
        .iterate(spread)
        .sink(mo.collect("changes"), uid="changes")
    )
    return job


if __name__ == "__main__":
    for place, component in sorted(dict(mo.run(build()).collected("changes")).items()):
        print(f"{place} belongs to {component}")
