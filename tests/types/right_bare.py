"""A program without annotations, as most are begun: no type checker has anything to say about it."""

import moorline as mo

LATE = mo.OutputTag("late")
RULES = mo.MapStateDescriptor("rules")


class Count(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)
    names = mo.ListState()
    pages = mo.MapState()
    anything = mo.ValueState()
    sums = mo.ReducingState(int, lambda a, b: a + b)

    def open(self, runtime_context):
        self.last = runtime_context.get_state(mo.ValueStateDescriptor("last"))

    def process_element(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        self.last.update(value)
        self.pages[value["user"]] = 1
        if value["amount"] < 0:
            ctx.output(LATE, value)
            yield LATE, value
        else:
            yield ctx.current_key, self.seen.value(), self.anything.value().nothing_is_known

    def on_timer(self, timestamp, ctx):
        ctx.timer_service().register_event_time_timer(timestamp + 1)


class Mean(mo.AggregateFunction):
    def create_accumulator(self):
        return 0, 0.0

    def add(self, value, accumulator):
        return accumulator[0] + 1, accumulator[1] + value["amount"]

    def get_result(self, accumulator):
        return accumulator[1] / accumulator[0]


class Double(mo.MapFunction):
    def map(self, record):
        return record * 2


class Numbers(mo.SourceFunction):
    def run(self, ctx):
        yield from range(3)


class Judge(mo.KeyedBroadcastProcessFunction):
    def process_element(self, payment, ctx):
        if payment["amount"] > ctx.get_broadcast_state(RULES).get("limit", 0):
            yield ctx.get_current_key(), payment

    def process_broadcast_element(self, rule, ctx):
        ctx.get_broadcast_state(RULES).put(*rule)


class Show(mo.SinkFunction):
    def invoke(self, record, context):
        print(record)


def by_user(record):
    return record["user"]


def pairs(record, ctx):
    yield record["user"], record["amount"]


job = mo.Job("bare", parallelism=2)
payments = job.source(mo.from_items([{"user": "ada", "amount": 3}, {"user": "bob", "amount": None}]), uid="payments")
payments.map(lambda payment: payment["amount"] * 2).map(str.upper).sink(mo.print())
counted = payments.key_by(by_user).process(Count(), uid="count")
counted.map(Double()).map(lambda record: record.whatever).sink(mo.collect("out"))
counted.side_output(LATE).map(lambda late: late["user"]).sink(Show())
payments.key_by(lambda payment: payment["user"]).process(lambda payment, ctx: [payment["amount"] + 1])
payments.process(pairs).key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
payments.key_by(by_user).window(mo.TumblingEventTimeWindows("1min")).aggregate(Mean())
payments.key_by(by_user).count_window(3).reduce(lambda a, b: a)
rules = job.source(mo.generate(lambda i: ("limit", i), count=3))
payments.key_by(by_user).connect(rules.broadcast(RULES)).process(Judge())
job.source(Numbers()).union(job.source(mo.from_items([1, 2]))).map(lambda n: n + 1).sink(mo.discard())
job.source(mo.from_items([("ada", 1), ("bob", 2)])).key_by(lambda r: r[0]).map(lambda r: r[1] + 1)
job.source(mo.read_files("somewhere", format="jsonl")).map(lambda line: line["user"].upper())


def build(pairs=[("ada", 1)], made=lambda i: (i, 1)):  # noqa: B006
    source = job.source(mo.from_items(pairs))
    source.map(lambda pair: pair[0]).map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).reduce(
        lambda a, b: (a[0], a[1] + b[1])
    )
    job.source(mo.generate(made, count=3)).map(lambda pair: pair[0])
    job.source(mo.from_items([])).map(lambda nothing: nothing.is_known)


words = job.source(mo.from_items(["to", "be"]))
pairs_of = words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0])
pairs_of.reduce(lambda a, b: (a[0], a[1] + b[1])).map(lambda pair: pair[1] + 1).sink(mo.print())
pairs_of.window(mo.TumblingEventTimeWindows("1min")).reduce(lambda a, b: (a[0], a[1] + b[1]))
job.source(mo.from_items([3, 1])).key_by(lambda n: n % 2).reduce(max)
job.source(mo.from_items([3, 1])).key_by(lambda n: n % 2).count_window(2).reduce(max)


class Seen(mo.KeyedBatchFunction):
    seen = mo.ValueState(bool, default=False)

    def process_batch(self, keys, batch, states):
        states.seen.update([True] * len(keys))
        return batch


def in_euros(batch):
    return batch.append_column("euros", [cents / 100 for cents in batch["cents"].to_pylist()])


def are_large(batch):
    return [cents > 3 for cents in batch["cents"].to_pylist()]


def flat(frame):
    frame["cents"] = 0
    return frame


rows = payments.with_schema("user string, cents bigint", uid="rows")
rows.map_batches(in_euros).map_batches(lambda batch: batch.slice(1)).map(lambda row: row["euros"].whatever)
rows.map_batches(flat, frames="pandas", schema="user string, cents bigint").filter_batches(are_large)
rows.where(mo.col("cents") > 3).select("user", euros=mo.col("cents") / 100, uid="euros").sink(mo.print())
by_column = rows.key_by("user")
by_column.process_batches(Seen(), schema=rows.schema).key_by(lambda row: row["user"]).process(Count())
by_column.aggregate(n=mo.count(), total=mo.sum("cents"), uid="totals").where(mo.col("n") > 1)
by_column.window(mo.TumblingEventTimeWindows("1min")).aggregate(total=mo.sum("cents"))
by_column.window(mo.TumblingEventTimeWindows("1min")).aggregate(Mean()).map(lambda mean: mean + 1)
by_column.window(mo.TumblingEventTimeWindows("1min")).reduce(lambda a, b: a)
job.source(mo.generate_batches(lambda numbers: in_euros(numbers), count=3)).with_schema("euros double")
