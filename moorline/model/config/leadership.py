"""Election of a leader among several drivers of a job."""

from __future__ import annotations

from dataclasses import dataclass, field

from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options


@checks_options()
@dataclass(frozen=True, kw_only=True)
class StorageLease:
    """Standby drivers of a job, one of which leads, by files beside its checkpoints.

    >>> StorageLease(ttl="15s").ttl_ms
    15000
    """

    #: So long after the last sign of life of the leader another one takes over.
    ttl: Duration = "15s"

    def __post_init__(self) -> None:
        _check_ttl(self.ttl)

    @property
    def ttl_ms(self) -> int:
        return milliseconds(self.ttl, "ttl")


@checks_options()
@dataclass(frozen=True, kw_only=True)
class ZooKeeper:
    """Standby drivers of a job, one of which leads, by a session of ZooKeeper's.

    >>> ZooKeeper("zk1:2181,zk2:2181,zk3:2181", path="/moorline").ttl_ms
    15000
    """

    #: ``host:port``, with commas between several.
    hosts: str = field(kw_only=False)
    #: Each job has a node of its name below this one.
    path: str = "/moorline"
    #: The timeout of the session: so long after the last sign of life of the leader another one takes over.
    ttl: Duration = "15s"
    #: For example ``("digest", "user:password")``: then nodes can be changed by that user alone. Never shown.
    auth: tuple[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_ttl(self.ttl)
        if not self.path.startswith("/"):
            raise InvalidArgument("path", self.path, "A path in ZooKeeper begins with a slash.")

    @property
    def ttl_ms(self) -> int:
        return milliseconds(self.ttl, "ttl")


def _check_ttl(ttl: Duration) -> None:
    if milliseconds(ttl, "ttl") < 500:
        raise InvalidArgument("ttl", ttl, "The shortest is 500 ms: a leader must be able to renew it in time.")
