"""The parts of the demo that need no Spark: its alerts, and that its verdict can be no."""

import json
from types import SimpleNamespace

import pytest

from moorline import demo
from moorline.testing.harness import OperatorHarness

RECORDS = 200_000


@pytest.fixture(scope="module")
def expected():
    return demo.plain_loop(RECORDS)


def verdict(alerts, folder, restored=(0, 3)):
    # Two files, as if of two subtasks.
    for part in (0, 1):
        lines = [json.dumps(alert) + "\n" for alert in alerts[part::2]]
        (folder / f"part-{part}.jsonl").write_text("".join(lines))
    result = SimpleNamespace(checkpoints=[1, 2, 3], failures=["attempt 1: killed"], restored_from=list(restored))
    return demo.verdict(RECORDS, folder, result, demo.PlainLines())


def test_the_function_finds_what_the_loop_finds(expected):
    with OperatorHarness(demo.Watch(), key=lambda p: p[0], parallelism=2) as harness:
        found = harness.process_all(map(demo.payment, range(RECORDS)))
    assert found == expected
    assert {alert["why"] for alert in found} == {"three in a row", "unusual amount"}


def test_the_payments_of_a_card_come_from_one_split():
    splits = {}
    for number in range(RECORDS):
        splits.setdefault(demo.payment(number)[0], set()).add(number % demo.SPLITS)
    assert all(len(of_card) == 1 for of_card in splits.values())


def test_the_same_alerts_are_identical(expected, tmp_path, capsys):
    assert verdict(expected[::-1], tmp_path)
    assert "IDENTICAL" in capsys.readouterr().out


@pytest.mark.parametrize("change", [lambda a: a[1:], lambda a: [*a, a[0]], lambda a: [*a[1:], a[1]]])
def test_an_alert_lost_or_doubled_is_noticed(change, expected, tmp_path, capsys):
    assert not verdict(change(expected), tmp_path)
    assert "DIFFERENT" in capsys.readouterr().out


def test_a_run_without_a_recovery_proves_nothing(expected, tmp_path, capsys):
    assert not verdict(expected, tmp_path, restored=[0])
    assert "NOT PROVED" in capsys.readouterr().out
