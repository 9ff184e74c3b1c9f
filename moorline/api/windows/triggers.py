"""Triggers: they decide when a window's contents are passed on.

A trigger is asked about every record and every timer of a window, and answers with a :class:`TriggerResult`. It holds
no memory of its own: one object serves all windows of a subtask. What it has to remember is state per window, asked
for by a descriptor that is an attribute of its class or made in ``__init__``::

    class FirstAndEveryTenth(mo.Trigger):
        SEEN = mo.ReducingStateDescriptor("seen", operator.add, int)

        def on_element(self, element, timestamp, window, ctx):
            seen = ctx.get_partitioned_state(self.SEEN)
            seen.add(1)
            return mo.TriggerResult.FIRE if seen.get() % 10 == 1 else mo.TriggerResult.CONTINUE

        def clear(self, window, ctx):
            ctx.get_partitioned_state(self.SEEN).clear()

Called by ``subtask/windows/firing.py``, which also removes windows that are over: a trigger need not see to that.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from operator import add
from typing import TYPE_CHECKING, Any, Protocol

from moorline.api.state.descriptors import ReducingStateDescriptor, StateDescriptor
from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options

if TYPE_CHECKING:
    from moorline.api.windows.assigners import Window


class TriggerResult(Enum):
    """A trigger's decision on a window: pass on its contents, forget them, both, or nothing.

    >>> TriggerResult.FIRE_AND_PURGE.is_fire(), TriggerResult.CONTINUE.is_fire()
    (True, False)
    """

    CONTINUE = (False, False)
    FIRE = (True, False)
    PURGE = (False, True)
    FIRE_AND_PURGE = (True, True)

    def __init__(self, fires: bool, purges: bool) -> None:
        self.fires, self.purges = fires, purges

    def is_fire(self) -> bool:
        return self.fires

    def is_purge(self) -> bool:
        return self.purges


CONTINUE, FIRE, PURGE, FIRE_AND_PURGE = TriggerResult


class TriggerContext(Protocol):
    """The clocks, timers and state of the window that a trigger is asked about."""

    def current_watermark(self) -> int: ...
    def current_processing_time(self) -> int: ...

    def get_current_watermark(self) -> int:
        """Same as ``current_watermark``, by PyFlink's name."""
        ...

    def get_current_processing_time(self) -> int:
        """Same as ``current_processing_time``, by PyFlink's name."""
        ...

    def register_event_time_timer(self, time: int) -> None: ...
    def register_processing_time_timer(self, time: int) -> None: ...
    def delete_event_time_timer(self, time: int) -> None: ...
    def delete_processing_time_timer(self, time: int) -> None: ...

    def get_partitioned_state(self, descriptor: StateDescriptor) -> Any:
        """The window's own state of one of the trigger's descriptors."""
        ...


class OnMergeContext(TriggerContext, Protocol):
    """The same when windows have become one."""

    def merge_partitioned_state(self, descriptor: StateDescriptor) -> None:
        """Bring what the merged windows had in a state into the new window's."""
        ...


class Trigger:
    """The rule that decides when a window's contents are passed on.

    >>> class EveryRecord(Trigger):
    ...     def on_element(self, element, timestamp, window, ctx):
    ...         return TriggerResult.FIRE
    """

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext, /) -> TriggerResult:
        """A record has been added to the window."""
        raise NotImplementedError

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext, /) -> TriggerResult:
        """Event time has reached a timer of the window. It need not be one that the trigger has registered."""
        return CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext, /) -> TriggerResult:
        """The clock has reached a timer of the window. It need not be one that the trigger has registered."""
        return CONTINUE

    def on_merge(self, window: Window, ctx: OnMergeContext, /) -> None:
        """Several windows have become ``window``. :meth:`clear` is called for each of them afterwards."""

    def clear(self, window: Window, ctx: TriggerContext, /) -> None:
        """The window is gone: delete its timers and state."""

    def can_merge(self) -> bool:
        """May it be used with windows that merge? Only if it says what to do then, in :meth:`on_merge`."""
        return type(self).on_merge is not Trigger.on_merge

    def states(self) -> dict[str, StateDescriptor]:
        """The descriptors that are attributes of this trigger, by name."""
        attributes = [v for cls in reversed(type(self).__mro__) for v in vars(cls).values()]
        attributes += getattr(self, "__dict__", {}).values()
        return {v.name: v for v in attributes if isinstance(v, StateDescriptor)}


class EventTimeTrigger(Trigger):
    """A trigger that fires when the watermark passes the end of the window, and again for every later record.

    >>> EventTimeTrigger().can_merge()
    True
    """

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.current_watermark():
            return FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return FIRE if time == window.max_timestamp() else CONTINUE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        # A window that has fired already does so again with its next record, which is the one that merges.
        if window.max_timestamp() > ctx.current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(Trigger):
    """A trigger that fires when the clock passes the end of the window.

    >>> ProcessingTimeTrigger().can_merge()
    True
    """

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return FIRE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        if window.max_timestamp() > ctx.current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


@checks_options()
class CountTrigger(Trigger):
    """A trigger that fires with every ``count`` records.

    >>> CountTrigger(3).count
    3
    """

    COUNT = ReducingStateDescriptor("count", add, int)

    def __init__(self, count: int) -> None:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InvalidArgument("count", count, "Give a whole number of records, at least 1.")
        self.count = count

    @classmethod
    def of(cls, count: int) -> CountTrigger:
        """The same, by PyFlink's name."""
        return cls(count)

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        seen = ctx.get_partitioned_state(self.COUNT)
        seen.add(1)
        if seen.get() < self.count:
            return CONTINUE
        seen.clear()
        return FIRE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.COUNT)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(self.COUNT).clear()


class _Continuous(Trigger):
    """The due time of the next of many firings: kept in state, so that a window has one such timer at a time."""

    NEXT = ReducingStateDescriptor("next-firing", min, int)

    def __init__(self, interval: Duration) -> None:
        self.interval_ms = milliseconds(interval, "interval")
        if self.interval_ms < 1:
            raise InvalidArgument("interval", interval, "Give a length of at least 1ms.")

    def _plan(self, after: int, window: Window, ctx: TriggerContext, register: Callable[[int], None]) -> None:
        due = after + self.interval_ms
        if after < window.max_timestamp():
            due = min(due, window.max_timestamp())
        ctx.get_partitioned_state(self.NEXT).add(due)
        register(due)

    def _is_due(self, time: int, window: Window, ctx: TriggerContext, register: Callable[[int], None]) -> bool:
        planned = ctx.get_partitioned_state(self.NEXT)
        if planned.get() != time:
            return False
        planned.clear()
        if time != window.max_timestamp():
            self._plan(time, window, ctx, register)
        return True

    def _forget(self, ctx: TriggerContext, delete: Callable[[int], None]) -> None:
        planned = ctx.get_partitioned_state(self.NEXT)
        if (due := planned.get()) is not None:
            delete(due)
            planned.clear()


@checks_options()
class ContinuousEventTimeTrigger(_Continuous):
    """A trigger that fires for each ``interval`` of event time, at the end of the window, and for late records.

    >>> ContinuousEventTimeTrigger("10s").interval_ms
    10000
    """

    @classmethod
    def of(cls, interval: Duration) -> ContinuousEventTimeTrigger:
        """The same, by PyFlink's name."""
        return cls(interval)

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.current_watermark():
            return FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        if ctx.get_partitioned_state(self.NEXT).get() is None:
            if timestamp is None:
                raise InvalidArgument("timestamp", None, "Records need timestamps under a trigger of event time.")
            self._plan(timestamp - timestamp % self.interval_ms, window, ctx, ctx.register_event_time_timer)
        return CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        is_due = self._is_due(time, window, ctx, ctx.register_event_time_timer)
        return FIRE if is_due or time == window.max_timestamp() else CONTINUE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.NEXT)
        if (due := ctx.get_partitioned_state(self.NEXT).get()) is not None:
            ctx.register_event_time_timer(due)
        if window.max_timestamp() > ctx.current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self._forget(ctx, ctx.delete_event_time_timer)
        ctx.delete_event_time_timer(window.max_timestamp())


@checks_options()
class ContinuousProcessingTimeTrigger(_Continuous):
    """A trigger that fires for each ``interval`` of the clock, and at the end of windows of processing time.

    >>> ContinuousProcessingTimeTrigger("10s").interval_ms
    10000
    """

    @classmethod
    def of(cls, interval: Duration) -> ContinuousProcessingTimeTrigger:
        """The same, by PyFlink's name."""
        return cls(interval)

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        if ctx.get_partitioned_state(self.NEXT).get() is None:
            now = ctx.current_processing_time()
            self._plan(now - now % self.interval_ms, window, ctx, ctx.register_processing_time_timer)
        return CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return FIRE if self._is_due(time, window, ctx, ctx.register_processing_time_timer) else CONTINUE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.NEXT)
        if (due := ctx.get_partitioned_state(self.NEXT).get()) is not None:
            ctx.register_processing_time_timer(due)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self._forget(ctx, ctx.delete_processing_time_timer)


@checks_options()
class PurgingTrigger(Trigger):
    """Another trigger that forgets a window's contents whenever it fires.

    >>> PurgingTrigger(CountTrigger(3)).inner.count
    3
    """

    def __init__(self, inner: Trigger) -> None:
        if not isinstance(inner, Trigger):
            raise InvalidArgument("PurgingTrigger", inner, "Give a trigger, such as CountTrigger(3).")
        self.inner = inner

    @classmethod
    def of(cls, inner: Trigger) -> PurgingTrigger:
        """The same, by PyFlink's name."""
        return cls(inner)

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.inner.on_element(element, timestamp, window, ctx))

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.inner.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.inner.on_processing_time(time, window, ctx))

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        self.inner.on_merge(window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self.inner.clear(window, ctx)

    def can_merge(self) -> bool:
        return self.inner.can_merge()

    def states(self) -> dict[str, StateDescriptor]:
        return {**super().states(), **self.inner.states()}


def _purging(result: TriggerResult) -> TriggerResult:
    return FIRE_AND_PURGE if result.fires else result


class NeverTrigger(Trigger):
    """A trigger that never fires: the default of :class:`~moorline.api.windows.assigners.GlobalWindows`.

    >>> NeverTrigger().on_element("record", 0, None, None)
    <TriggerResult.CONTINUE: (False, False)>
    """

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def can_merge(self) -> bool:
        return True


class EndOfStreamTrigger(Trigger):
    """A trigger that fires once, when the input has ended.

    >>> EndOfStreamTrigger().states()
    {}
    """

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        ctx.register_event_time_timer(window.max_timestamp())
        return CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return FIRE if time == window.max_timestamp() else CONTINUE

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
