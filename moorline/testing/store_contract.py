"""Earlier place of :mod:`moorline.testing.contracts.store`."""

from moorline.testing.contracts.store import BlobStoreContract

__all__ = ["BlobStoreContract"]
