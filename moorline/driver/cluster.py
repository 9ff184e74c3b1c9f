"""The interface by which a supervision runs attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from moorline.model.ids import SubtaskId
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.messages import Order


class Background(Protocol):
    """A way to have work done off the driver's thread: the work of one line in its order, that of others beside it."""

    def __call__(self, line: str, work: Callable[[], Any], done: Callable[[BaseException | None], None], /) -> None:
        """Call ``work`` on another thread, and then ``done`` on the driver's, with the error if there was one."""
        ...


class Cluster(Protocol):
    """A place to run attempts: Spark, or a simulation."""

    def launch(self, deployment: Deployment) -> None:
        """Start all subtasks. Its end is reported to :meth:`Supervision.attempt_ended`."""
        ...

    def send(self, subtask: SubtaskId, order: Order) -> None:
        """Send an order to a subtask of the running attempt. One that is gone will be noticed otherwise."""
        ...

    def cancel(self) -> None:
        """End the running attempt."""
        ...

    @property
    def background(self) -> Background:
        """The executor for work that takes long."""
        ...

    def has_room(self, slots: int) -> bool:
        """Could it run so many subtasks at once, if the running attempt were gone?"""
        ...
