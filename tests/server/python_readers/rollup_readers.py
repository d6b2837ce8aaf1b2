"""Reads a store's rollups of five minutes with DuckDB and with pandas, by the lines that docs/format.md gives, and
compares: the two with each other, bit by bit, and each file with the samples of the block that it was made of.
Prints what each series comes to in each window, all files and the samples that no rollup has together, as a line
of JSON: metric, device, cluster, job, labels, seconds of the window, mean, largest value."""

import glob
import json
import math
import os
import re
import sys

import duckdb
import pandas

store, document = sys.argv[1], sys.argv[2]
os.chdir(store)


def lines(after, end):
    """The lines of the document from one on to the end of its last one, with what it ends with cut off."""
    text = open(document).read()
    found = text[text.index(after):]
    return re.sub("(?m)^    ", "", found[: found.index(end)])


VIEW = lines("SELECT * REPLACE", "-- DuckDB")
PANDAS = lines("frame = pandas.concat", "# pandas")
KEY = ["device", "metric", "cluster", "job_id", "labels", "timestamp", "first_at"]
NAMES = KEY + ["count", "last_at", "first", "last", "min", "max", "sum", "seconds", "integral", "before_resets", "resets"]

duckdb.execute("SET TimeZone = 'UTC'")
seen = duckdb.sql(f"SELECT {', '.join(NAMES)} FROM ({VIEW}) ORDER BY ALL").df()
exec(PANDAS)
frame = frame[NAMES].sort_values(KEY, na_position="last").reset_index(drop=True)


def same(one, other):
    if pandas.isna(one) or pandas.isna(other):
        return bool(pandas.isna(one) and pandas.isna(other))
    return one == other


if len(frame) == 0 or len(frame) != len(seen):
    sys.exit(f"DuckDB has {len(seen)} rows, pandas {len(frame)}")
order = seen.sort_values(KEY, na_position="last").reset_index(drop=True)
for one, other in zip(order.itertuples(index=False), frame.itertuples(index=False)):
    if not all(same(a, b) for a, b in zip(one, other)):
        sys.exit(f"DuckDB has {one}, pandas {other}")

# A rollup file has the windows of the block with the same name.
SAMPLES = "SELECT *, coalesce(step / divisor, real) AS value, time_bucket(INTERVAL 5 minutes, timestamp) AS bucket FROM '{}'"
compared = 0
for name in glob.glob("rollups/*-300s.parquet"):
    block = "blocks/" + os.path.basename(name).replace("-300s", "")
    if not os.path.exists(block):
        continue
    pairs = duckdb.execute(
        f"""
        WITH steps AS (
            SELECT *, lead(value) OVER w AS next, epoch_us(lead(timestamp) OVER w) - epoch_us(timestamp) AS us
            FROM ({SAMPLES.format(block)})
            WINDOW w AS (PARTITION BY device, metric, cluster, job_id, labels, bucket ORDER BY timestamp)
        ), windows AS (
            SELECT device, metric, cluster, job_id, labels, bucket, count(*) AS n, min(value) AS low, max(value) AS high,
                   sum(value) AS total, coalesce(sum(us / 1e6) FILTER (us <= 600000000), 0) AS covered,
                   coalesce(sum((value + next) / 2 * us / 1e6) FILTER (us <= 600000000), 0) AS area
            FROM steps GROUP BY ALL
        )
        SELECT w.n, r.count, w.low, r.min, w.high, r.max, w.total, r.sum, w.covered, r.seconds, w.area, r.integral
        FROM windows w LEFT JOIN ({VIEW.replace('rollups/*-300s.parquet', name)}) r
        ON w.device = r.device AND w.metric = r.metric AND w.cluster IS NOT DISTINCT FROM r.cluster
           AND w.job_id IS NOT DISTINCT FROM r.job_id AND w.labels = r.labels AND w.bucket = r.timestamp
        """
    ).fetchall()
    for row in pairs:
        for want, told in zip(row[::2], row[1::2]):
            # Skip columns that the rollups of this series do not store: they are null.
            if told is None and row[7] is None and row[1] is not None:
                continue
            if told is None or not math.isclose(want, told, rel_tol=1e-12, abs_tol=1e-9):
                sys.exit(f"{name}: {row}")
        compared += 1
if compared == 0:
    sys.exit("no file of rollups has its block beside it")

rolled = {os.path.basename(name).replace("-300s", "") for name in glob.glob("rollups/*-300s.parquet")}
alone = [name for name in glob.glob("blocks/*.parquet") if os.path.basename(name) not in rolled]
parts = f"SELECT metric, device, cluster, job_id, labels, timestamp AS bucket, sum, count, max FROM ({VIEW})"
for name in alone:
    parts += f"""
    UNION ALL SELECT metric, device, cluster, job_id, labels, bucket, value, 1, value FROM ({SAMPLES.format(name)})"""
for row in duckdb.execute(
    f"""
    SELECT metric, device, cluster, job_id, labels, epoch_us(bucket) // 1000000, sum(sum) / sum(count), max(max)
    FROM ({parts}) GROUP BY ALL
    """
).fetchall():
    print(json.dumps(row))
