"""What the queries have to find, in DuckDB's SQL over the same files.

Where a query leaves open which of several equal rows it takes, the columns that differ among them are left out on both
sides: columns of the SQL are what is compared.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb

from nexmark_queries.events import TABLES
from nexmark_queries.query import Query

#: Of several rows a float is the sum, in any order.
DIGITS = 9

_IN_TIME = """
    SELECT id, item, seller, category, auction.date_time AS begins, expires, auction, bidder, price, bid.date_time
    FROM auction JOIN bid ON id = auction AND bid.date_time BETWEEN auction.date_time AND expires"""
_RANKS = {
    "rank1": "WHERE price < 10000",
    "rank2": "WHERE price >= 10000 AND price < 1000000",
    "rank3": "WHERE price >= 1000000",
}
_COUNTS = ", ".join(
    f"count({counted}) {chosen} AS {rank}_{kind}s"
    for kind, counted in (("bid", "*"), ("bidder", "DISTINCT bidder"), ("auction", "DISTINCT auction"))
    for rank, chosen in {"total": "", **{rank: f"FILTER ({of_rank})" for rank, of_rank in _RANKS.items()}}.items()
)

SQL = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908::DOUBLE * price AS price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT name, city, state, auction.id AS auction FROM auction JOIN person ON seller = person.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
    "q4": f"""
        SELECT category, avg(final) AS final
        FROM (SELECT category, max(price) AS final FROM ({_IN_TIME}) GROUP BY id, category)
        GROUP BY category""",
    "q5": """
        SELECT auction, make_timestamp(window_end * 1000) AS window_end, bids FROM (
            SELECT *, rank() OVER (PARTITION BY window_end ORDER BY bids DESC) AS rank FROM (
                SELECT auction, (date_time // 2000 + n + 1) * 2000 AS window_end, count(*) AS bids
                FROM bid, range(5) AS slides(n) GROUP BY ALL))
        WHERE rank = 1""",
    "q7": """
        SELECT auction, bidder, price, date_time, extra FROM (
            SELECT *, rank() OVER (PARTITION BY date_time // 10000 ORDER BY price DESC) AS rank FROM bid)
        WHERE rank = 1""",
    "q8": """
        SELECT DISTINCT person.id, name AS person, make_timestamp(person.date_time // 10000 * 10000000) AS window_start
        FROM person JOIN auction ON seller = person.id AND person.date_time // 10000 = auction.date_time // 10000""",
    "q9": f"""
        SELECT auction, price, date_time, item, seller, category, begins, expires FROM (
            SELECT *, row_number() OVER (PARTITION BY id ORDER BY price DESC, date_time) AS place FROM ({_IN_TIME}))
        WHERE place = 1""",
    "q11": """
        SELECT bidder, make_timestamp(min(date_time) * 1000) AS window_start,
            make_timestamp((max(date_time) + 10000) * 1000) AS window_end, count(*) AS bids FROM (
                SELECT *, sum(is_new) OVER (
                    PARTITION BY bidder ORDER BY date_time, is_new DESC ROWS UNBOUNDED PRECEDING) AS session FROM (
                        SELECT bidder, date_time, CASE WHEN date_time - lag(date_time) OVER (
                            PARTITION BY bidder ORDER BY date_time) <= 10000 THEN 0 ELSE 1 END AS is_new FROM bid))
        GROUP BY bidder, session""",
    # Which window a bid is in depends on the clock, and the sum over all of them does not.
    "q12": "SELECT bidder, count(*) AS bids FROM bid GROUP BY bidder",
    "q14": """
        SELECT auction, bidder, euros AS price, date_time, extra,
            CASE WHEN h BETWEEN 8 AND 18 THEN 'day' WHEN h <= 6 OR h >= 20 THEN 'night' ELSE 'other' END AS part_of_day,
            len(extra) - len(replace(extra, 'c', '')) AS cs
        FROM (SELECT *, 0.908::DOUBLE * price AS euros, hour(make_timestamp(date_time * 1000)) AS h FROM bid)
        WHERE euros > 1000000 AND euros < 50000000""",
    "q15": f"SELECT date_time // 86400000 AS day, {_COUNTS} FROM bid GROUP BY day",
    "q16": f"SELECT channel, date_time // 86400000 AS day, {_COUNTS} FROM bid GROUP BY channel, day",
    "q17": f"""
        SELECT auction, date_time // 86400000 AS day, count(*) AS total_bids,
            {", ".join(f"count(*) FILTER ({of_rank}) AS {rank}_bids" for rank, of_rank in _RANKS.items())},
            min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price)::BIGINT AS sum_price
        FROM bid GROUP BY auction, day""",
    "q18": "SELECT bidder, auction, max(date_time) AS date_time FROM bid GROUP BY bidder, auction",
    "q19": """
        SELECT * FROM (
            SELECT auction, price, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS rank FROM bid)
        WHERE rank <= 10""",
    "q20": """
        SELECT bid.auction, bidder, price, channel, bid.date_time, item, seller, category, auction.date_time AS begins,
            expires FROM bid JOIN auction ON bid.auction = auction.id WHERE category = 10""",
    "q21": """
        SELECT * FROM (
            SELECT auction, bidder, price, channel, CASE lower(channel)
                WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE nullif(regexp_extract(url, '[&?]channel_id=([^&]*)', 1), '') END AS channel_id
            FROM bid)
        WHERE channel_id IS NOT NULL""",
    "q22": """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
            split_part(url, '/', 6) AS dir3 FROM bid""",
}


def expected(name: str, folder: Path) -> tuple[list[str], Counter[tuple[Any, ...]]]:
    """The columns to be compared, and the rows that there have to be."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for table in TABLES:
            database.execute(f"CREATE VIEW {table} AS SELECT * FROM '{folder / table}/*.parquet'")
        found = database.execute(SQL[name]).to_arrow_table()
    return found.schema.names, rows_of(found.to_pylist(), found.schema.names)


def found(query: Query, rows: Iterable[Mapping[str, Any]], columns: list[str]) -> Counter[tuple[Any, ...]]:
    """The rows that there are in the end, of all that were emitted."""
    if query.replaces:
        rows = {tuple(row[name] for name in query.replaces): row for row in rows}.values()
    if query.adds is None:
        return rows_of(rows, columns)
    sums: Counter[tuple[Any, ...]] = Counter()
    others = [name for name in columns if name != query.adds]
    for row in rows:
        sums[tuple(row[name] for name in others)] += row[query.adds]
    added = ({**dict(zip(others, key)), query.adds: total} for key, total in sums.items())
    return rows_of(added, columns)


def found_by_flink(result: Mapping[str, Any], columns: list[str]) -> Counter[tuple[Any, ...]]:
    """The rows that Flink has found, whose times are texts."""
    rows = (dict(zip(result["columns"], row)) for row in result["rows"])
    times = [name for name in columns if name in ("window_start", "window_end")]
    return rows_of(({**row, **{t: datetime.datetime.fromisoformat(row[t]) for t in times}} for row in rows), columns)


def rows_of(rows: Iterable[Mapping[str, Any]], columns: list[str]) -> Counter[tuple[Any, ...]]:
    """How often there is each row."""
    return Counter(tuple(_comparable(row[name]) for name in columns) for row in rows)


def difference(expected: Counter[tuple[Any, ...]], found: Counter[tuple[Any, ...]]) -> str:
    """What differs, in words; empty if nothing does."""
    missing, surplus = expected - found, found - expected
    if not missing and not surplus:
        return ""
    shown = [
        f"{name}, such as {next(iter(rows))}" for name, rows in (("missing", missing), ("surplus", surplus)) if rows
    ]
    return f"{missing.total()} rows missing and {surplus.total()} surplus of {expected.total()}: {'; '.join(shown)}"


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value
