"""Types as a user meets them: right programs are silent, and each mistake in a wrong one is found where it stands."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from pathlib import Path

import pytest

import moorline as mo
from moorline.api.options import StateOptions, StepOptions
from moorline.api.state.descriptors import STATE_OPTIONS
from moorline.connectors.kafka.read import KafkaOptions
from moorline.connectors.nats.read import NatsOptions
from moorline.connectors.redis.read import StreamOptions
from moorline.model.options import STEP_OPTIONS
from moorline.spark.run import start
from moorline.spark.start_options import StartOptions

HERE = Path(__file__).parent
RIGHT = sorted(path.name for path in HERE.glob("right_*.py"))
WRONG = sorted(path.name for path in HERE.glob("wrong_*.py"))
#: The checkers are run once for all, by one worker.
pytestmark = [pytest.mark.xdist_group("types"), pytest.mark.slow]
#: One mistake may be complained of twice, in one line.
EXPECTED = re.compile(r"# error: ([\w+-]+) \| ([\w+]+)$")


def expected(name: str, checker: str) -> dict[int, set[str]]:
    """By line: the complaints that are announced there."""
    lines = enumerate((HERE / name).read_text().splitlines(), 1)
    found = {number: match for number, line in lines if (match := EXPECTED.search(line))}
    return {number: set(match[1 if checker == "mypy" else 2].split("+")) for number, match in found.items()}


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_is_silent(complaints, checker, name):
    assert [complaint for complaint in complaints[checker] if complaint.file == name] == []


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
@pytest.mark.parametrize("name", WRONG)
def test_every_mistake_is_found_and_nothing_else(complaints, checker, name):
    found: dict[int, set[str]] = defaultdict(set)
    for complaint in complaints[checker]:
        if complaint.file == name:
            found[complaint.line].add(complaint.code)
    assert found == expected(name, checker)


def test_the_options_that_checkers_know_are_those_that_are_taken():
    assert set(StepOptions.__annotations__) == set(STEP_OPTIONS)
    assert set(StateOptions.__annotations__) == set(STATE_OPTIONS)
    assert list(StartOptions.__annotations__) == list(inspect.signature(start).parameters)[2:]
    taken = {*inspect.signature(mo.read_kafka).parameters} - {"brokers", "topics", "format", "as_records"}
    taken -= {"schema", "metadata"}  # of columns alone, which have a signature of their own
    assert set(KafkaOptions.__annotations__) == taken
    taken = {*inspect.signature(mo.read_redis_stream).parameters} - {"url", "streams", "format", "as_records"}
    assert set(StreamOptions.__annotations__) == taken
    taken = {*inspect.signature(mo.read_nats).parameters} - {"servers", "stream", "format", "as_records"}
    assert set(NatsOptions.__annotations__) == taken


def test_public_classes_can_be_given_types_at_run_time():
    class Typed(mo.KeyedProcessFunction[str, int, tuple[str, int]]):
        last = mo.ValueState[int](int, default=0)

        def process_element(self, value, ctx):
            yield ctx.current_key, value

    job = mo.Job("typed")
    tag = mo.OutputTag[int]("late")
    stream: mo.Stream[int] = job.source(mo.from_items([1]))
    out = stream.key_by(str).process(Typed(), uid="typed")
    out.side_output(tag).sink(mo.discard(), uid="late")
    assert [operator.uid for operator in job.graph().operators][1:] == ["typed", "late"]
    assert tag == mo.OutputTag("late")
