"""Earlier place of :mod:`moorline.testing.contracts.external`."""

from moorline.testing.contracts.external import ExternalStoreContract

__all__ = ["ExternalStoreContract"]
