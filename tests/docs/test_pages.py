"""All Python in the documentation runs, all relative links lead somewhere, and lists of names are complete.

The blocks of a page are executed in order in one namespace and in a folder of their own. A page that begins with
``<!-- spark -->`` gets a running Spark, which ``mo.run(job)`` then uses by itself; one with ``<!-- kafka -->``,
``<!-- redis -->`` or ``<!-- nats -->`` in its second line gets a server, and the topics that it takes for granted.
"""

import re
import sys
from pathlib import Path

import pytest
from connectors.services import redis_server  # noqa: F401

from moorline.api.state.ttl import StateTtlConfig
from moorline.api.watermarks import WatermarkStrategy
from moorline.cli.scripts import load_job
from moorline.connectors.postgres.state import PostgresState
from moorline.connectors.redis.state import RedisState
from moorline.errors import FailureReason
from moorline.http import routes
from moorline.http.console import Console
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.config.leadership import StorageLease, ZooKeeper
from moorline.model.config.restarts import ExponentialDelay, FailureRate, FixedDelay
from moorline.model.config.run import Autoscale, RunConfig
from moorline.model.config.state import RocksDb

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SPARK = "<!-- spark -->"
#: What stands in pages for the address of a server.
ADDRESSES = {"kafka": "localhost:9092", "redis": "redis://localhost:6379/0", "nats": "nats://localhost:4222"}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEST = re.compile(r"\[`(test_\w+)`\]\(([\w./]+)\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run_page(page: Path, monkeypatch, folder: Path, system: str = "", address: str = "") -> None:
    """Execute the blocks of a page; a failure names the line of the page."""
    text = page.read_text()
    if system:
        text = text.replace(ADDRESSES[system], address)
    monkeypatch.chdir(folder)
    # As in a script: what is defined in it travels to workers by value.
    namespace = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        exec(compile("\n" * first + block[1], name(page), "exec"), namespace)


def pages(on_spark: bool) -> list[Path]:
    """Those with code. The pages of the protocol have doctests in them, which tests/protocol runs."""
    texts = {p: p.read_text() for p in PAGES if p.parent.name != "protocol"}
    return [p for p, text in texts.items() if BLOCK.search(text) and text.startswith(SPARK) is on_spark]


def server_of(page: Path) -> str:
    """The server that the code of a page on Spark needs; empty: none."""
    found = re.match(rf"{SPARK}\n<!-- (\w+) -->", page.read_text())
    return found[1] if found else ""


@pytest.mark.parametrize("page", pages(on_spark=False), ids=name)
def test_the_code_of_a_page_runs(page, monkeypatch, tmp_path):
    run_page(page, monkeypatch, tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("page", [p for p in pages(on_spark=True) if not server_of(p)], ids=name)
def test_the_code_of_a_page_runs_on_spark(page, monkeypatch, tmp_path, spark):
    run_page(page, monkeypatch, tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("page", [p for p in pages(on_spark=True) if server_of(p) == "kafka"], ids=name)
def test_the_code_of_a_page_runs_on_spark_and_kafka(page, monkeypatch, tmp_path, spark, kafka_server):
    kafka_server.new_topic(4, exact="shop.orders")
    run_page(page, monkeypatch, tmp_path, "kafka", kafka_server.brokers)


@pytest.mark.spark
@pytest.mark.parametrize("page", [p for p in pages(on_spark=True) if server_of(p) == "redis"], ids=name)
def test_the_code_of_a_page_runs_on_spark_and_redis(page, monkeypatch, tmp_path, spark, redis_server):  # noqa: F811
    run_page(page, monkeypatch, tmp_path, "redis", redis_server.url)


@pytest.mark.spark
@pytest.mark.parametrize("page", [p for p in pages(on_spark=True) if server_of(p) == "nats"], ids=name)
def test_the_code_of_a_page_runs_on_spark_and_nats(page, monkeypatch, tmp_path, spark, nats_server):
    run_page(page, monkeypatch, tmp_path, "nats", nats_server.url)


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(ROOT.glob("docs/tutorial/*.md"))], ids=name)
def test_the_job_of_a_page_can_be_loaded_by_the_command_line(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    script = tmp_path / "page.py"
    script.write_text("\n".join(BLOCK.findall(page.read_text())))
    job = load_job(str(script))
    assert job.graph().operators, "and nothing was started"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(page):
    links = LINK.findall(FENCED.sub("", page.read_text()))
    targets = [link.partition("#")[0] for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [t for t in targets if t and not (page.parent / t).exists()] == []


def test_every_page_can_be_reached_from_the_readme():
    seen, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop().resolve()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        todo += [page.parent / link.partition("#")[0] for link in LINK.findall(page.read_text()) if "://" not in link]
    assert {name(p) for p in PAGES} - {name(p) for p in seen} == set()


def test_the_index_lists_every_decision_in_its_order():
    listed = re.findall(r"^\| \[\d{4}\]\(decisions/([\w-]+\.md)\)", (ROOT / "docs/index.md").read_text(), re.MULTILINE)
    assert listed == sorted(path.name for path in ROOT.glob("docs/decisions/*.md"))


def test_every_failpoint_is_documented():
    used = {f for p in (ROOT / "moorline").rglob("*.py") for f in re.findall(r'failpoint\("([\w.]+)"\)', p.read_text())}
    page = (ROOT / "docs/reference/failpoints.md").read_text()
    assert used == set(re.findall(r"^\| `([\w.]+)` \| (?:driver|worker) \|", page, re.MULTILINE))


def test_every_failure_reason_is_documented():
    page = (ROOT / "docs/reference/failure-reasons.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (yes|no) \|", page, re.MULTILINE)
    assert rows == [(r.name, r.sentence, "yes" if r.counts else "no") for r in FailureReason]


CONFIGURED = [Checkpoints, FixedDelay, FailureRate, ExponentialDelay, RunConfig, RocksDb, Autoscale]
CONFIGURED += [StorageLease, ZooKeeper, Console, StateTtlConfig, WatermarkStrategy, PostgresState, RedisState]


@pytest.mark.parametrize("config", CONFIGURED)
def test_every_setting_is_documented(config):
    page = (ROOT / "docs/reference/configuration.md").read_text()
    assert [f for f in config.__dataclass_fields__ if f"| `{f}` |" not in page] == []


@pytest.mark.parametrize("page", [p for p in PAGES if TEST.search(p.read_text())], ids=name)
def test_every_test_that_a_page_names_exists(page):
    named = [(test, page.parent / path) for test, path in TEST.findall(page.read_text())]
    assert [test for test, file in named if not re.search(rf"^ *def {test}\(", file.read_text(), re.MULTILINE)] == []


def test_every_feature_of_state_names_the_test_that_shows_it():
    page = (ROOT / "docs/reference/state-features.md").read_text()
    rows = re.findall(r"^\| (?!capability|---).*$", page, re.MULTILINE)
    assert len(rows) > 50
    assert [row for row in rows if not TEST.search(row)] == []


def test_every_way_to_ask_over_http_is_documented():
    page = (ROOT / "docs/guides/querying-state.md").read_text()
    documented = re.findall(r"^\| `(GET|POST) (/v1/\w+)`", page, re.MULTILINE)
    assert documented == re.findall(r'case "(GET|POST)", "(/v1/\w+)":', Path(routes.__file__).read_text())


def test_the_glossary_plans_nothing_that_is_there():
    assert "(planned)" not in (ROOT / "docs/glossary.md").read_text()
