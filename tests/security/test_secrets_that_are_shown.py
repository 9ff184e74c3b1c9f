"""Passwords and records stay out of what is shown: locations, the configuration on the page, files of events."""

from __future__ import annotations

import json
import os
import stat

import pytest

import moorline as mo
from moorline.driver.description import describe_config
from moorline.driver.observation.delivery import events_listener
from moorline.errors import InvalidArgument
from moorline.model.config.run import RunConfig
from moorline.storage.stores.open import open_store

SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        f"sftp://me:{SECRET}@host/chk",
        f"fsspec+sftp://me:{SECRET}@host/chk",
        f"s3://key:{SECRET}@bucket/chk",
        f"sftp://me:x@{SECRET}@host/chk",
        f"SFTP://:{SECRET}@host",
    ],
)
def test_a_location_with_a_password_is_refused_and_the_password_not_repeated(url):
    """A location stands in the log, in errors, in manifests' URLs, and on the page."""
    with pytest.raises(InvalidArgument, match="storage_options") as caught:
        open_store(url)
    assert SECRET not in str(caught.value) + repr(caught.value)


def test_an_at_sign_that_is_no_password_is_fine(tmp_path):
    assert open_store(f"{tmp_path}/a:b@c").url.endswith("/a%3Ab%40c")


@pytest.mark.parametrize(
    "location",
    [
        f"sftp://me:{SECRET}@host/chk",
        f"sftp://me:a@b{SECRET}@host/chk",
        f"sftp://host/chk?password={SECRET}",
        f"az://host/chk?a=1&sig={SECRET}&b=2",
        f"s3://bucket/x?aws_secret_access_key={SECRET}",
    ],
)
def test_the_configuration_on_the_page_has_no_password_in_it(location):
    job = mo.Job("shown")
    job.source(mo.from_items([1])).sink(mo.discard())
    checkpoints = mo.Checkpoints(location, storage_options={"password": SECRET})
    shown = json.dumps(describe_config(RunConfig(checkpoints=checkpoints, restore=location), job.graph()))
    assert SECRET not in shown
    assert "password (not shown)" in shown and "://" in shown


def test_a_file_of_events_is_for_its_owner_alone_unless_it_is_there(tmp_path):
    """Errors in it may show a record."""
    before = os.umask(0o022)
    try:
        (tmp_path / "there").touch(0o644)
        for name, mode in (("new", 0o600), ("there", 0o644)):
            events_listener(tmp_path / name).close()
            assert stat.S_IMODE(os.stat(tmp_path / name).st_mode) == mode
    finally:
        os.umask(before)
