"""The page on metrics and the Grafana dashboard name what there is, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from moorline.http.metric_families import FAMILIES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/metrics.md").read_text()
DASHBOARD: dict[str, Any] = json.loads((ROOT / "moorline/http/grafana_dashboard.json").read_text())


def rows(page: str) -> dict[str, tuple[str, ...]]:
    found = re.findall(r"^\| `moorline_(\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", page, re.MULTILINE)
    return {name: (kind, labels, help) for name, kind, labels, help in found}


def test_the_page_lists_every_metric_as_it_is():
    expected = {
        name: (family.kind, ", ".join(f"`{label}`" for label in family.labels) or "–", family.help)
        for name, family in FAMILIES.items()
    }
    assert rows(PAGE) == expected


def expressions() -> list[str]:
    of_panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    of_variables = [v["definition"] for v in DASHBOARD["templating"]["list"] if v["type"] == "query"]
    return [*of_panels, *of_variables, *(a["expr"] for a in DASHBOARD["annotations"]["list"])]


def test_the_dashboard_asks_for_metrics_that_there_are():
    asked = {name for expression in expressions() for name in re.findall(r"moorline_(\w+)", expression)}
    assert asked <= set(FAMILIES), asked - set(FAMILIES)
    not_shown = {"checkpoint_last_id", "worker_gc_collections_total", "operator_rocksdb_rows", "samples_dropped"}
    not_shown |= {"operator_watermark_timestamp_seconds", "subtask_records_out_total"}
    assert asked == set(FAMILIES) - not_shown


def test_the_dashboard_groups_by_labels_that_there_are():
    for expression in expressions():
        for name in re.findall(r"moorline_(\w+)", expression):
            family = FAMILIES[name]
            has = {"job", *family.labels, *(("operator", "subtask") if family.scope != "job" else ())}
            by = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
            selected = set(re.findall(r"(\w+)=~", expression))
            assert by | selected <= has, (name, expression)


def test_counters_are_shown_as_rates():
    for panel in DASHBOARD["panels"]:
        if panel["type"] != "timeseries":
            continue
        for target in panel["targets"]:
            counters = [n for n in re.findall(r"moorline_(\w+)", target["expr"]) if FAMILIES[n].kind == "counter"]
            assert not counters or re.search(r"rate\(|increase\(", target["expr"]), target["expr"]


def test_panels_do_not_lie_over_each_other():
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
