"""Earlier place of :mod:`moorline.testing.contracts.backend`."""

from moorline.testing.contracts.backend import BackendTests, KeyedBackendContract

__all__ = ["BackendTests", "KeyedBackendContract"]
