"""What the tests of storage share."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorline.storage.blobs import BlobStore
from moorline.storage.stores.local import LocalStore
from moorline.storage.stores.memory import MemoryStore

pytest.register_assert_rewrite("moorline.testing.contracts.store")


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return MemoryStore("history") if request.param == "memory" else LocalStore(tmp_path)
