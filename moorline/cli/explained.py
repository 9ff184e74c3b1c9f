"""An explanation of state as text: a table of states, and of each large one the largest keys and key groups."""

from __future__ import annotations

import json
from typing import Any

import click

from moorline.cli.output import age, printable, show_table, size

#: A key group with so many times the share of the others is worth a line.
_SKEW = 3.0
_SHOWN_KEY = 60
_STATE = ("operator", "state", "kind", "keys", "rows", "bytes", "stored", "written", "grown", "expired")


def show_explanation(found: dict[str, Any]) -> None:
    """Prints what :func:`moorline.http.explained.explanation_to_json` gives."""
    head = f"job {found['job']}, checkpoint {found['checkpoint']}: {size(found['stored'])} stored"
    click.echo(printable(f"{head}, {age(found['created_ms'])} ago"))
    if found["since"] is not None:
        apart = age(found["since_ms"], found["created_ms"])
        grown = _signed(found["stored"] - found["since_stored"])
        click.echo(f"grown: {grown} since checkpoint {found['since']}, {apart} earlier")
    click.echo()
    operators = found["operators"]
    rows = [(o["uid"], str(o["parallelism"]), f"{o['rows']:,}", size(o["bytes"]), size(o["stored"])) for o in operators]
    headers = ("operator", "parallelism", "rows", "bytes", "stored")
    show_table(headers, rows, numbers=headers[1:])
    click.echo()
    show_table(_STATE, [_state_row(state) for state in found["states"]], numbers=_STATE[3:])
    for operator in operators:
        _show_hottest(operator)
    for state in found["states"]:
        _show_state(state)


def _state_row(state: dict[str, Any]) -> tuple[str, ...]:
    stored = "-" if state["stored"] is None else size(state["stored"])
    written = "-" if state["written"] is None else size(state["written"])
    grown = "-" if state["growth"] is None else _signed(state["growth"]["bytes"])
    expired = "-" if state["expired"] is None else size(state["expired"]["bytes"])
    counts = (f"{state['keys']:,}" if state["keys"] else "-", f"{state['rows']:,}", size(state["bytes"]))
    return state["uid"], state["state"] or state["table"], state["kind"], *counts, stored, written, grown, expired


def _show_hottest(operator: dict[str, Any]) -> None:
    if not operator.get("hottest"):  # of a snapshot they are not known
        return
    click.echo()
    click.echo(printable(f"{operator['uid']}: the keys that get the most records now, as a sample shows"))
    for key in operator["hottest"]:
        rate = f"{key['records_per_second']:,.0f} records/s"
        click.echo(printable(f"  {_key(key)}  {100 * key['share']:.1f} %, {rate}"))


def _key(of: dict[str, Any]) -> str:
    shown = json.dumps(of["key"], ensure_ascii=False)
    return shown if len(shown) <= _SHOWN_KEY else shown[:_SHOWN_KEY] + "..."


def _show_state(state: dict[str, Any]) -> None:
    if not state["largest"]:
        return
    click.echo()
    click.echo(printable(f"{state['uid']} {state['state']}: the largest of {state['keys']:,} keys"))
    total = max(1, state["bytes"])
    for key in state["largest"]:
        share = 100 * key["bytes"] / total
        line = (
            f"  {_key(key)}  {size(key['bytes'])} ({share:.1f} %) in {key['rows']:,} rows, key group {key['key_group']}"
        )
        click.echo(printable(line))
    groups = state["key_groups"]
    largest = max(groups, key=lambda group: group["bytes"])
    mean = total / len(groups)
    line = f"  {len(groups)} key groups, {size(round(mean))} each on average; the largest, {largest['key_group']},"
    skewed = " : that is skew" if largest["bytes"] > _SKEW * mean and len(groups) > 1 else ""
    click.echo(f"{line} has {size(largest['bytes'])}{skewed}")
    expired = state["expired"]
    if expired is not None:
        undated = f"; {expired['undated']:,} say neither when nor how long" if expired["undated"] else ""
        removed = f"{expired['rows']:,} rows, {size(expired['bytes'])}"
        click.echo(f"  a time to live would remove {removed} now{undated}")
    if state["replaced"]:
        click.echo(f"  {state['replaced']:,} rows in its files are replaced by increments, until they are folded")


def _signed(count: int) -> str:
    return ("+" if count >= 0 else "-") + size(abs(count))
