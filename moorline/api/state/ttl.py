"""Time to live of state: the words a user configures it with. The rules are in ``protocol/expiry.py``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options

UPDATE_TYPES = ("on_create_and_write", "on_read_and_write")
VISIBILITIES = ("never_return_expired", "return_expired_if_not_cleaned_up")
TIMES = ("processing", "event")


@checks_options()
@dataclass(frozen=True)
class StateTtlConfig:
    """Forget state that was not touched for ``length``: each value, list element and map entry by itself.

    >>> hour = StateTtlConfig("1h", update="on_read_and_write")
    >>> hour.length_ms
    3600000

    What is stored is when something was last touched, not how long it may live: the running job's configuration
    decides, so a new length holds at once, for old state too.
    """

    length: Duration
    #: What counts as a touch: writing, or reading as well.
    update: Literal["on_create_and_write", "on_read_and_write"] = field(default="on_create_and_write", kw_only=True)
    #: May a read still see what is over its time and not yet removed?
    visibility: Literal["never_return_expired", "return_expired_if_not_cleaned_up"] = field(
        default="never_return_expired", kw_only=True
    )
    #: The wall clock, or event time: then a record's own timestamp is when it judges and touches state.
    time: Literal["processing", "event"] = field(default="processing", kw_only=True)
    #: Leave out of full snapshots what is over its time.
    cleanup_full_snapshot: bool = field(default=False, kw_only=True)
    #: At each access look at so many other entries and remove those that are over their time. 0: none.
    cleanup_incrementally: int = field(default=5, kw_only=True)

    def __post_init__(self) -> None:
        if self.length_ms <= 0:
            raise InvalidArgument("time to live", self.length, "Give a length above zero, such as '1h'.")
        for name, known in (("update", UPDATE_TYPES), ("visibility", VISIBILITIES), ("time", TIMES)):
            if getattr(self, name) not in known:
                raise InvalidArgument(name, getattr(self, name), f"It is one of {', '.join(map(repr, known))}.")
        if type(self.cleanup_incrementally) is not int or self.cleanup_incrementally < 0:
            raise InvalidArgument("cleanup_incrementally", self.cleanup_incrementally, "Give a number from 0.")

    @property
    def length_ms(self) -> int:
        return milliseconds(self.length, "time to live")


#: A time to live: with its rules, or as a length alone.
TimeToLive = StateTtlConfig | Duration


def as_ttl(ttl: StateTtlConfig | Duration | None) -> StateTtlConfig | None:
    """A length alone is a configuration with everything else as it is by default."""
    return ttl if ttl is None or isinstance(ttl, StateTtlConfig) else StateTtlConfig(ttl)
