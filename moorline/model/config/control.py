"""Settings of the control port: where the driver listens for its subtasks."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from moorline.errors import InvalidArgument
from moorline.model.options import checks_options


@checks_options()
@dataclass(frozen=True)
class ControlPort:
    """The address at which a driver listens for the control lines of its subtasks.

    >>> ControlPort(port=7077, bind="0.0.0.0", advertise="driver.internal").port
    7077

    Without it, it listens where Spark's driver does (``spark.driver.bindAddress``), on any free port.
    """

    #: 0: any free one. Behind a firewall or a Kubernetes service it has to be known. A job of its own needs its own.
    port: int = 0
    #: The address to listen on; None: that of Spark's driver.
    bind: str | None = None
    #: The name or address that workers connect to; None: that of Spark's driver.
    advertise: str | None = None

    def __post_init__(self) -> None:
        if type(self.port) is not int or not 0 <= self.port <= 65_535:
            raise InvalidArgument("port", self.port, "Give a number up to 65535; 0 is any free port.")
        for name in ("bind", "advertise"):
            value = getattr(self, name)
            if value is not None and (type(value) is not str or not value.strip() or "/" in value):
                raise InvalidArgument(name, value, "Give a host name or an address, without a port.")
        if self.advertise is not None and _is_any(self.advertise):
            raise InvalidArgument(
                "advertise", self.advertise, "Workers cannot connect to this: name the driver's host."
            )

    def hosts(self, bind: str, advertise: str) -> tuple[str, str]:
        """The address to listen on and the one to connect to; those given are what Spark's driver has."""
        return self.bind or bind, self.advertise or advertise


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
