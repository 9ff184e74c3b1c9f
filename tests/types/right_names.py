"""Parameters of what users override may have any name: Moorline gives them by position."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import moorline as mo
from moorline.api.windows.assigners import Window
from moorline.api.windows.evictors import Timed
from moorline.api.windows.triggers import OnMergeContext, TriggerContext


class Told(mo.JobListener):
    def on_started(self, it: mo.JobEvent) -> None: ...
    def on_progress(self, it: mo.JobEvent) -> None: ...
    def on_metrics(self, it: mo.JobEvent) -> None: ...
    def on_checkpoint(self, it: mo.JobEvent) -> None: ...
    def on_restart(self, it: mo.JobEvent) -> None: ...
    def on_terminated(self, it: mo.JobEvent) -> None: ...


class Each(mo.Trigger):
    def on_element(self, order: Any, at: int | None, span: Window, c: TriggerContext) -> mo.TriggerResult:
        return mo.TriggerResult.FIRE

    def on_event_time(self, at: int, span: Window, c: TriggerContext) -> mo.TriggerResult:
        return mo.TriggerResult.CONTINUE

    def on_merge(self, span: Window, c: OnMergeContext) -> None: ...
    def clear(self, span: Window, c: TriggerContext) -> None: ...


class Last(mo.Evictor):
    def evict_before(self, orders: list[Timed], span: Window) -> list[Timed]:
        return orders[-1:]


class Newest(mo.WatermarkGenerator):
    def on_event(self, order: Any, at: int) -> None: ...


class Doubled(mo.FlatMapFunction[int, int]):
    def flat_map(self, n: int) -> Iterable[int]:
        return (n, n)


mo.add_listener(Told())
