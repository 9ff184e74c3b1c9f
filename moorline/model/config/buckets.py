"""A bucket by its URL, through obstore, with options that checkpoints and files share. Needs the extra object-store.

The names of options are those of obstore; without any, the environment tells, as for each service's own tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from obstore.exceptions import (
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from moorline.errors import InvalidArgument

#: Which of the options are for the HTTP client.
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "default_headers",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        "proxy_ca_certificate",
        "proxy_excludes",
        "root_certificate",
        "randomize_addresses",
        "read_timeout",
        "timeout",
        "user_agent",
    }
)
#: Errors of a service that do not pass until someone changes a name or a permission.
LASTING = (
    PermissionDeniedError,
    UnauthenticatedError,
    InvalidPathError,
    NotSupportedError,
    PermissionError,
    NotImplementedError,
)


def open_bucket(
    url: str,
    options: Mapping[str, Any],
    in_short: Callable[[Exception], str],
    named: str,
    *,
    retries: int,
    seconds: int,
) -> Any:
    """The store of ``url``. ``retries``, in so many ``seconds``, are made by the client itself.

    An option or an address that makes no sense is an InvalidArgument; ``named`` is what the caller calls the address.
    """
    given = dict(options)
    client = {name: given.pop(name) for name in list(given) if name in _CLIENT_OPTIONS}
    repeats = {"max_retries": retries, "retry_timeout": timedelta(seconds=seconds)}
    opens: Any = from_url  # its types want to know which service it is
    try:
        return opens(url, config=given or None, client_options=client or None, retry_config=repeats)
    except UnknownConfigurationKeyError as error:
        raise InvalidArgument("storage_options", sorted(given), in_short(error)) from None
    except (BaseError, ValueError, TypeError) as error:
        raise InvalidArgument(named, url, in_short(error)) from None
