"""The description of a job as it was started: its graph and its configuration, as JSON. Asked for by the web page.

Nothing in it is secret: of ``storage_options`` only the names are shown, and of a URL not the credentials in it.
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from typing import Any

from moorline.api.state.states import declared_states
from moorline.model.config.run import RunConfig
from moorline.model.graph import Graph, Operator, Plan

#: Characters shown of a setting, and of the name of a type.
SETTING_CHARACTERS = 500
#: Options that are shown by what they hold, or not at all.
_NOT_SHOWN = ("checkpoints", "restart", "thresholds")
#: All that stands before the last @ of a host, for a password may have one in it; and what a query says of secrets.
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@|(?<=[?&])[^=&\s]*(?:pass|secret|token|key|sig|auth)[^=&\s]*=[^&\s]*", re.I)
_SECRET = re.compile(r"password|secret|token|credential|storage_options|api_?key|auth", re.IGNORECASE)


def describe_graph(plan: Plan) -> dict[str, Any]:
    """The operators with their states, in the vertices that they are chained into, and the links between these."""
    graph = plan.graph
    return {
        "max_parallelism": graph.max_parallelism,
        "stages": len(plan.widths),
        "slots": sum(plan.widths),
        "operators": {o.uid: _operator(o) for o in graph.operators},
        "vertices": [
            {"id": v.id, "stage": v.stage, "parallelism": v.parallelism, "operators": list(v.operators)}
            for v in plan.vertices
        ],
        "links": [
            {
                "source": link.source,
                "target": link.target,
                "operator": link.source_operator,
                "tag": link.tag,
                "partitioning": link.partitioning.value,
                "feedback": link.feedback,
            }
            for link in plan.links
        ],
    }


def _operator(operator: Operator) -> dict[str, Any]:
    states = [state.descriptor for state in declared_states(operator.function).values()]
    return {
        "name": operator.name,
        "kind": operator.kind.value,
        "function": type(operator.function).__qualname__ if operator.function is not None else "",
        "parallelism": operator.parallelism,
        "has_own_parallelism": operator.has_own_parallelism,
        "has_generated_uid": operator.has_generated_uid,
        "is_keyed": operator.is_keyed,
        "inputs": [str(i) for i in operator.inputs],
        "states": [{"name": d.name, "kind": d.kind, "expires": d.ttl_config is not None} for d in states],
    }


def describe_config(config: RunConfig, graph: Graph) -> dict[str, dict[str, str]]:
    """Settings by group, as text."""
    groups = {
        "job": {
            "key groups": str(graph.max_parallelism),
            **{f.name: _shown(f.name, getattr(config, f.name)) for f in fields(config) if f.name not in _NOT_SHOWN},
        },
        "restarts": {"strategy": type(config.restart_strategy).__name__, **_settings(config.restart_strategy)},
    }
    if config.checkpoints is not None:
        groups["checkpoints"] = _settings(config.checkpoints)
    return groups


def _settings(config: Any) -> dict[str, str]:
    return {f.name: _shown(f.name, getattr(config, f.name)) for f in fields(config)} if is_dataclass(config) else {}


def _shown(name: str, value: object) -> str:
    """A setting as text, without what is secret in it.

    >>> _shown("location", "s3://me:wo@rd@bucket/chk"), _shown("storage_options", {"secret_key": "x"})
    ('s3://bucket/chk', 'secret_key (not shown)')
    """
    if value is None:
        return "not set"
    if _SECRET.search(name):
        names = ", ".join(map(str, value)) if isinstance(value, dict) else "set"
        return f"{names} (not shown)"
    if is_dataclass(value) and not isinstance(value, type):
        settings = ", ".join(f"{n}={v}" for n, v in _settings(value).items())
        return f"{type(value).__name__}({settings})"[:SETTING_CHARACTERS]
    return _CREDENTIALS.sub("", str(value))[:SETTING_CHARACTERS]
