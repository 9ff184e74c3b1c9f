"""The heap backend against a plain dict, through checkpoints, failures, restarts and rescaling."""

from functools import partial

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from thoroughness import examples

from moorline.model.config.thresholds import Folding
from moorline.state.heap.backend import HeapBackend
from moorline.testing.contracts.backend.machines import machines

pytestmark = pytest.mark.slow

SETTINGS = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("machine", machines(HeapBackend), ids=lambda m: m.__name__)
def test_a_state_is_what_a_dict_says_it_is(machine):
    run_state_machine_as_test(machine, settings=SETTINGS)


#: As if every state were large.
folding = partial(HeapBackend, folding=Folding(copied_entries=-1, copied_share=2))


@pytest.mark.parametrize("machine", machines(folding)[::3], ids=lambda m: m.__name__)
def test_a_state_whose_chains_are_folded_is_what_a_dict_says_it_is(machine):
    run_state_machine_as_test(machine, settings=SETTINGS)
