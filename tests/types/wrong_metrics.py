"""Mistakes in metrics and in listeners. Beside each: mypy's code and pyright's rule."""

from __future__ import annotations

import moorline as mo


class Parse(mo.MapFunction[str, str]):
    def open(self, runtime_context: mo.RuntimeContext) -> None:
        group = runtime_context.metrics_group
        self.errors = group.counter("errors")
        self.sizes = group.add_group("side", "left").distribution("sizes")
        self.logins = group.meter("logins")
        group.counter(3)  # error: arg-type | reportArgumentType
        group.countr("x")  # error: attr-defined | reportAttributeAccessIssue
        group.gauge("depth", 3)  # error: arg-type | reportArgumentType
        group.histogram("seconds", bounds="x")  # error: arg-type | reportArgumentType
        group.histogram("seconds", bound=[1.0])  # error: call-arg | reportCallIssue
        group.meter("logins", time_span="10s")  # error: call-arg | reportCallIssue

    def map(self, value: str) -> str:
        self.errors.inc("x")  # error: arg-type | reportArgumentType
        self.errors.increment()  # error: attr-defined | reportAttributeAccessIssue
        self.sizes.update("x")  # error: arg-type | reportArgumentType
        self.logins.mark_event("x")  # error: arg-type | reportArgumentType
        return value


class Shown(mo.JobListener):
    def on_restart(self, event: int) -> None: ...  # error: override | reportIncompatibleMethodOverride

    def on_progress(self, event: mo.JobEvent) -> None:
        print(event.evnt)  # error: attr-defined | reportAttributeAccessIssue
        print(event.event + 1)  # error: operator | reportOperatorIssue


mo.add_listener(Shown)  # error: arg-type | reportArgumentType
mo.add_listener(print)  # error: arg-type | reportArgumentType
mo.remove_listener("shown")  # error: arg-type | reportArgumentType
mo.TracingListener("x", 3, 4)  # error: call-arg | reportCallIssue

handle = mo.start(mo.Job("observed"))
mo.start(mo.Job("observed"), consol=mo.HttpEndpoint())  # error: call-arg | reportCallIssue
mo.HttpEndpoint(prt=3)  # error: call-arg | reportCallIssue
handle.nonsense()  # error: attr-defined | reportAttributeAccessIssue
handle.explain(tpo=3)  # error: call-arg | reportCallIssue
handle.rescale("four")  # error: arg-type | reportArgumentType
