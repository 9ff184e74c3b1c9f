"""A module that workers lack: the error says which, and how to send it along."""

from __future__ import annotations

import importlib
import sys

import pytest

import moorline as mo
from moorline.errors import UnsupportedType, UserCodeFailed
from moorline.snapshots.compatibility import check_declared
from moorline.spark import shipping
from moorline.testing.harness import OperatorHarness


def test_a_function_of_a_module_that_workers_lack_says_how_to_send_it(tmp_path, monkeypatch):
    (tmp_path / "our_helpers.py").write_text("def double(n):\n    return 2 * n\n")
    monkeypatch.syspath_prepend(tmp_path)
    packed = shipping.pack(importlib.import_module("our_helpers").double)
    monkeypatch.undo()
    del sys.modules["our_helpers"]
    with pytest.raises(ModuleNotFoundError, match=r"'our_helpers'.*--py-files our_helpers\.py") as missing:
        shipping.unpack(packed)
    assert "\n" not in str(missing.value)


def test_a_module_that_is_missing_while_records_are_processed_is_named_too():
    def imports(value):
        import no_such_helpers  # noqa: PLC0415

        return no_such_helpers.double(value)

    with pytest.raises(UserCodeFailed, match=r"--py-files no_such_helpers\.py"):
        OperatorHarness(imports, kind="map").process(1)


class Odd(mo.KeyedProcessFunction):
    kept = mo.ValueState(type(lambda: None))

    def process_element(self, value, ctx):
        yield value


def test_a_type_that_cannot_be_stored_is_refused_before_spark_is_asked_for():
    job = mo.Job("odd")
    job.source(mo.from_items([1])).key_by(abs).process(Odd(), uid="odd").sink(mo.discard())
    with pytest.raises(UnsupportedType, match="'kept' of operator 'odd'"):
        check_declared(job.graph())
    with pytest.raises(UnsupportedType):
        mo.run(job)
    with pytest.raises(UnsupportedType):
        mo.run(job, mode="batch")
