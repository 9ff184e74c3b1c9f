"""Earlier place of :mod:`moorline.http.client`."""

from moorline.http.client import QueryClient

__all__ = ["QueryClient"]
