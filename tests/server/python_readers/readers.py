"""Reads a folder of blocks with DuckDB and with pandas, by the lines that docs/format.md gives, and prints
each sample as a line of JSON: metric, device, cluster, job, labels, microseconds, value. Ends with an
error if the two differ in one bit."""

import json
import math
import sys

import duckdb
import pandas

blocks = sys.argv[1]

duckdb.execute("SET TimeZone = 'UTC'")
rows = duckdb.execute(
    f"""
    SELECT metric, device, cluster, job_id, labels, epoch_us(timestamp), coalesce(step / divisor, real) AS value
    FROM '{blocks}/*.parquet'
    """
).fetchall()

frame = pandas.read_parquet(blocks)
frame["value"] = (frame.step / frame.divisor).fillna(frame.real)
times = frame.timestamp.astype("datetime64[us, UTC]").astype("int64")
columns = [frame.metric, frame.device, frame.cluster, frame.job_id, frame.labels, times, frame.value]
seen = [
    (metric, device, cluster if isinstance(cluster, str) else None, None if pandas.isna(job) else int(job),
     labels, int(time), float(value))
    for metric, device, cluster, job, labels, time, value in zip(*columns)
]

def key(row):
    return tuple("" if field is None else str(field) for field in row[:6])

rows.sort(key=key)
seen.sort(key=key)
if len(rows) != len(seen):
    sys.exit(f"DuckDB has {len(rows)} rows, pandas {len(seen)}")
for one, other in zip(rows, seen):
    same = one[6] == other[6] or (math.isnan(one[6]) and math.isnan(other[6]))
    if one[:6] != other[:6] or not same:
        sys.exit(f"DuckDB has {one}, pandas {other}")
for row in rows:
    print(json.dumps(row))
