"""Classes of the user's own, in records and in state, wherever they are defined."""

from __future__ import annotations

import runpy
from dataclasses import dataclass
from pathlib import Path

import pytest

import moorline as mo

pytestmark = pytest.mark.spark

SCRIPT = """
from dataclasses import dataclass
from enum import Enum

import moorline as mo


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Ball:
    number: int
    colour: Colour


class Last(mo.KeyedProcessFunction):
    last = mo.ValueState(Ball)

    def process_element(self, value, ctx):
        before = self.last.value()
        self.last.update(value)
        yield Ball(value.number + (before.number if before else 0), ctx.current_key)


job = mo.Job("balls", parallelism=2)
balls = job.source(mo.from_items([1, 2, 3, 4])).map(lambda n: Ball(n, Colour.RED if n % 2 else Colour.BLUE))
balls.key_by(lambda b: b.colour).process(Last()).sink(mo.collect("out"))
out = mo.run(job).collected("out")
assert all(type(ball) is Ball for ball in out)
print(sorted((ball.number, ball.colour.name) for ball in out))
"""


def test_a_script_may_define_the_classes_of_its_records(spark, tmp_path: Path, capsys):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    runpy.run_path(str(script), run_name="__main__")  # as Python runs it, on the Spark that is there
    assert capsys.readouterr().out.strip() == "[(1, 'RED'), (2, 'BLUE'), (4, 'RED'), (6, 'BLUE')]"


def test_so_may_a_function(spark):
    @dataclass
    class Local:
        number: int

    job = mo.Job("local-classes", parallelism=2)
    numbers = job.source(mo.from_items(list(range(100)))).map(Local)
    numbers.key_by(lambda r: r.number % 7).map(lambda r: Local(r.number + 1)).sink(mo.collect("out"))
    out = mo.run(job, spark).collected("out")
    assert all(type(record) is Local for record in out)
    assert sorted(record.number for record in out) == list(range(1, 101))
