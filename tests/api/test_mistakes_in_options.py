"""Options, locations and streams that used to be something else than what was meant, without a word."""

from __future__ import annotations

import os

import pytest

import moorline as mo
from moorline.errors import InvalidArgument, UnknownName
from moorline.model.config.run import RunConfig
from moorline.storage.stores.open import open_store

TAG = mo.OutputTag("late")


def numbers() -> mo.Stream:
    return mo.Job("test").source(mo.from_items([1]), uid="numbers")


@pytest.mark.parametrize("value", ["false", "no", 0, None])
@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda **option: mo.Checkpoints("/data", **option), "unaligned"),
        (lambda **option: mo.run(mo.Job("test"), **option), "object_reuse"),
        (lambda **option: mo.run(mo.Job("test"), **option), "allow_non_restored_state"),
        (lambda **option: numbers().iterate(lambda s: (s, s), **option), "pickled"),
    ],
)
def test_an_option_that_is_on_or_off_takes_no_text_that_would_be_true(make, option, value):
    with pytest.raises(InvalidArgument, match=f"{option}: got {value!r}. It is True or False"):
        make(**{option: value})


def test_an_option_that_is_on_or_off_takes_no_text():
    assert mo.Checkpoints("/data", incremental=False).incremental is False
    with pytest.raises(InvalidArgument, match="incremental: got 'false'"):
        mo.Checkpoints("/data", incremental="false")  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["retained", "max_concurrent", "tolerable_failures"])
@pytest.mark.parametrize("value", ["3", 1.5, True, None])
def test_a_number_of_checkpoints_is_a_whole_number(option, value):
    with pytest.raises(InvalidArgument, match=f"{option}: got {value!r}.*a whole number"):
        mo.Checkpoints("/data", **{option: value})


@pytest.mark.parametrize("restart", [3, "none", mo.NoRestart, True])
def test_a_restart_strategy_is_one(restart):
    with pytest.raises(InvalidArgument, match=r"restart: .*mo\.FixedDelay"):
        RunConfig(restart=restart)


@pytest.mark.parametrize("restore", ["latset", "Latest", "lastest"])
def test_a_misspelt_latest_is_no_folder(restore):
    with pytest.raises(InvalidArgument, match="Is 'latest' meant"):
        RunConfig(restore=restore, checkpoints=mo.Checkpoints("/data"))


@pytest.mark.parametrize("folder", ["./latset", "/data/latest", "savepoints/latest-1"])
def test_a_folder_that_is_named_like_it_may_be_restored_by_its_path(folder):
    assert RunConfig(restore=folder).savepoint == folder


@pytest.mark.parametrize("location", ["s3:/bucket/x", "S3://bucket/x", "gs:bucket", "hdfs:/x", "file:data"])
def test_a_url_with_a_slip_is_no_local_folder(location):
    with pytest.raises(InvalidArgument, match=r"storage location.*Supported are"):
        open_store(location)
    with pytest.raises(InvalidArgument):
        mo.write_files(location)


def test_a_home_is_the_users_home_and_no_folder_that_is_called_so():
    assert open_store("~/checkpoints").url == f"file://{os.path.expanduser('~')}/checkpoints"


def test_a_dict_is_not_read_as_a_list_of_its_keys():
    with pytest.raises(InvalidArgument, match=r"Give d\.items\(\)"):
        mo.from_items({"a": 1})


class Ends(mo.MapFunction):
    def map(self, value):
        return value

    def finish(self):
        yield TAG, "rest"


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map(abs, uid="step"),
        lambda s: s.filter(bool, uid="step"),
        lambda s: s.flat_map(lambda n: [n], uid="step"),
        lambda s: s.assign_timestamps_and_watermarks(mo.WatermarkStrategy.none(), uid="step"),
        lambda s: s.map(abs, uid="step").key_by(abs),
    ],
)
def test_a_side_output_of_a_step_that_has_none_is_refused_and_does_not_stay_empty(build):
    with pytest.raises(InvalidArgument, match=r"'step' is a .*, which has none"):
        build(numbers()).side_output(TAG)


def test_a_step_that_may_yield_at_its_end_may_have_one():
    assert numbers().map(Ends(), uid="step").side_output(TAG)


@pytest.mark.parametrize(
    ("name", "ours"),
    [("enable_checkpointing", "mo.Checkpoints"), ("Row", "dataclass"), ("set_parallelism", "mo.Job")],
)
def test_names_of_an_environment_are_answered_by_the_module(name, ours):
    with pytest.raises(UnknownName, match=ours):
        getattr(mo, name)
