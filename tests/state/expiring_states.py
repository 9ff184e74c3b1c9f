"""States to be given a time to live, the backend that holds them, and when it all begins."""

from __future__ import annotations

from moorline.api.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from moorline.state.heap.backend import HeapBackend
from moorline.testing.contracts.backend.base import BackendTests

START = 1_700_000_000_000
VALUE, MAP = ValueStateDescriptor("value", int), MapStateDescriptor("map", str, int | None)


class OnTheHeap(BackendTests):
    def make_backend(self, uid, max_parallelism, moment=None, *, incremental=False, key_type=None):
        return HeapBackend(uid, max_parallelism, moment, incremental=incremental, key_type=key_type)
