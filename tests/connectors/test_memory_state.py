"""The memory store keeps the contract of all stores, and fails where it is told to."""

import itertools
import random

import pytest
from thoroughness import examples

from moorline.connectors.memory_state import memory_state
from moorline.errors import InvalidArgument
from moorline.testing.contracts.external import ExternalStoreContract
from moorline.testing.contracts.external_runs import ExternalRun

names = itertools.count(1)


class TestMemoryStore(ExternalStoreContract):
    @pytest.fixture
    def store(self):
        return memory_state(f"contract {next(names)}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(30)))
def test_each_record_counts_once_when_the_store_fails_before_and_after_it_did_what_it_should(seed):
    store, chance = (
        memory_state(f"failing {next(names)}", cache_bytes=(0, 1000, 1 << 20)[seed % 3]),
        random.Random(seed),
    )

    def fail(step):
        if step != "scan" and chance.random() < 0.05:
            raise ConnectionResetError(f"at {step}")

    store.data.on_step = fail
    run = ExternalRun(store, seed)
    run.play(60)
    store.data.on_step = lambda step: None
    run.start()
    run.finish()


@pytest.mark.slow
def test_the_runs_are_not_vacuous():
    refused = failures = 0
    for seed in range(10):
        store, chance = memory_state(f"failing {next(names)}"), random.Random(seed)

        def fail(step, chance=chance):
            if step == "applied" and chance.random() < 0.3:
                raise ConnectionResetError(step)

        store.data.on_step = fail
        run = ExternalRun(store, seed)
        run.play(60)
        refused, failures = refused + run.refused, failures + run.failures
        assert len(run._truth) > 3
    assert refused > 5
    assert failures > 5


def test_stores_of_one_name_are_one_store():
    one, other = memory_state("one name"), memory_state("one name")
    assert one.data is other.data
    assert one.data is not memory_state("another name").data


@pytest.mark.parametrize("options", [{"on_fresh_start": "hope"}, {"cache_bytes": -1}], ids=str)
def test_settings_of_no_use_are_refused(options):
    with pytest.raises(InvalidArgument):
        memory_state("x", **options)
