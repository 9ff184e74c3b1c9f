"""The queries in Flink's SQL, over the same files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from nexmark_queries.events import TABLES

_TYPES = {pa.int64(): "BIGINT", pa.string(): "STRING"}


def declared(folder: Path) -> list[str]:
    """Statements that declare the tables. Times are in order in each file, and a subtask reads one of two."""
    made = []
    for table, schema in TABLES.items():
        columns = ", ".join(f"`{field.name}` {_TYPES[field.type]}" for field in schema)
        made.append(
            f"CREATE TABLE {table} ({columns}, ts AS TO_TIMESTAMP_LTZ(date_time, 3), now AS PROCTIME(), "
            "WATERMARK FOR ts AS ts) "
            f"WITH ('connector' = 'filesystem', 'path' = '{(folder / table).as_uri()}', 'format' = 'parquet')"
        )
    return made


_IN_TIME = "auction AS a JOIN bid AS b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires"
_DAY = "date_time / 86400000"
_RANKS = {
    "total": "",
    "rank1": "FILTER (WHERE price < 10000)",
    "rank2": "FILTER (WHERE price >= 10000 AND price < 1000000)",
    "rank3": "FILTER (WHERE price >= 1000000)",
}
_COUNTS = ", ".join(
    f"COUNT({counted}) {of_rank} AS {rank}_{kind}s"
    for kind, counted in (("bid", "*"), ("bidder", "DISTINCT bidder"), ("auction", "DISTINCT auction"))
    for rank, of_rank in _RANKS.items()
)
_TUMBLE = "TUMBLE(TABLE {}, DESCRIPTOR({}), INTERVAL '10' SECOND)"
_NUMBER = r"REGEXP_EXTRACT(url, '[&?]channel_id=([^&]*)', 1)"

SQL = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(0.908 AS DOUBLE) * price AS price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id AS auction FROM auction AS a JOIN person AS p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""
        SELECT category, AVG(CAST(final AS DOUBLE)) AS final
        FROM (SELECT MAX(b.price) AS final, a.category FROM {_IN_TIME} GROUP BY a.id, a.category) GROUP BY category""",
    "q5": """
        SELECT counts.auction, counts.window_end, counts.bids FROM (
            SELECT auction, COUNT(*) AS bids, window_start, window_end
            FROM HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)
            GROUP BY auction, window_start, window_end) AS counts
        JOIN (
            SELECT MAX(bids) AS most, window_start, window_end FROM (
                SELECT COUNT(*) AS bids, window_start, window_end
                FROM HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)
                GROUP BY auction, window_start, window_end)
            GROUP BY window_start, window_end) AS hot
        ON counts.window_start = hot.window_start AND counts.window_end = hot.window_end AND bids >= most""",
    "q7": f"""
        SELECT b.auction, b.bidder, b.price, b.date_time, b.extra FROM bid AS b JOIN (
            SELECT MAX(price) AS most, window_end AS ends FROM {_TUMBLE.format("bid", "ts")}
            GROUP BY window_start, window_end) AS hot
        ON b.price = hot.most AND b.ts >= hot.ends - INTERVAL '10' SECOND AND b.ts < hot.ends""",
    "q8": f"""
        SELECT p.id, p.person, p.window_start FROM (
            SELECT id, name AS person, window_start, window_end FROM {_TUMBLE.format("person", "ts")}
            GROUP BY id, name, window_start, window_end) AS p
        JOIN (
            SELECT seller, window_start, window_end FROM {_TUMBLE.format("auction", "ts")}
            GROUP BY seller, window_start, window_end) AS a
        ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q9": f"""
        SELECT auction, price, date_time, item, seller, category, begins, expires FROM (
            SELECT b.auction, b.price, b.date_time, a.item, a.seller, a.category, a.date_time AS begins, a.expires,
                ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS place FROM {_IN_TIME})
        WHERE place <= 1""",
    "q11": """
        SELECT bidder, window_start, window_end, COUNT(*) AS bids
        FROM SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '10' SECOND)
        GROUP BY bidder, window_start, window_end""",
    "q12": f"""
        SELECT bidder, COUNT(*) AS bids, window_start FROM {_TUMBLE.format("bid", "now")}
        GROUP BY bidder, window_start, window_end""",
    "q14": """
        SELECT auction, bidder, euros AS price,
            CASE WHEN h BETWEEN 8 AND 18 THEN 'day' WHEN h <= 6 OR h >= 20 THEN 'night' ELSE 'other' END AS part_of_day,
            date_time, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS cs
        FROM (SELECT *, CAST(0.908 AS DOUBLE) * price AS euros, HOUR(ts) AS h FROM bid)
        WHERE euros > 1000000 AND euros < 50000000""",
    "q15": f"SELECT {_DAY} AS `day`, {_COUNTS} FROM bid GROUP BY {_DAY}",
    "q16": f"SELECT channel, {_DAY} AS `day`, {_COUNTS} FROM bid GROUP BY channel, {_DAY}",
    "q17": f"""
        SELECT auction, {_DAY} AS `day`, {", ".join(f"COUNT(*) {of} AS {rank}_bids" for rank, of in _RANKS.items())},
            MIN(price) AS min_price, MAX(price) AS max_price, AVG(CAST(price AS DOUBLE)) AS avg_price,
            SUM(price) AS sum_price
        FROM bid GROUP BY auction, {_DAY}""",
    "q18": """
        SELECT auction, bidder, price, date_time, channel, url, extra FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS place FROM bid)
        WHERE place <= 1""",
    "q19": """
        SELECT auction, bidder, price, date_time, channel, url, extra, place AS `rank` FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
        WHERE place <= 10""",
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.date_time, a.item, a.seller, a.category,
            a.date_time AS begins, a.expires
        FROM bid AS b JOIN auction AS a ON b.auction = a.id WHERE a.category = 10""",
    "q21": f"""
        SELECT * FROM (
            SELECT auction, bidder, price, channel, CASE LOWER(channel)
                WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE {_NUMBER} END AS channel_id FROM bid)
        WHERE channel_id IS NOT NULL""",
    "q22": """
        SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2,
            SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid""",
}
