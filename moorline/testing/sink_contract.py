"""Earlier place of :mod:`moorline.testing.contracts.sink`."""

from moorline.testing.contracts.sink import SinkContract

__all__ = ["SinkContract"]
