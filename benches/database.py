"""Compares the SQL functions of a database with Kwollect's own, before and after its adoption by `jobmeter db setup`.

usage: database.py [ROWS_PER_SERIES [SERIES_PER_NODE [NODES]]]   default: 3600 10 100 (dataset A, 3.6 million rows)

It needs PostgreSQL with plpython3, target/python (made by `make test`), and the command at JOBMETER (default target/release/jobmeter).
Prints the median, least and greatest milliseconds of each query as the reading role, the time of the adoption, its longest transaction, and bytes
per row. The database lies below target/bench, and is removed.
"""

import os
import statistics
import subprocess
import sys
import time

from cluster import FOLDER, ROOT, kwollect, shown, sql, start, stop

ROWS, SERIES, NODES = (int(word) for word in (sys.argv[1:] + ["3600", "10", "100"][len(sys.argv) - 1:])[:3])
JOBMETER = os.environ.get("JOBMETER", str(ROOT / "target/release/jobmeter"))
ROUNDS = 9
RANGE = "start_time => '1767700000', end_time => '1767703599'"
QUERIES = {
    "one node, one hour, all metrics": f"nodes => 'node-1', {RANGE}",
    "one node, one hour, its wattmeter by alias": f"nodes => 'node-1', metrics => 'wattmetre_power_watt', {RANGE}",
    "one node, five minutes, all metrics": "nodes => 'node-1', start_time => '1767700000', end_time => '1767700299'",
    "one node, one hour, as rates": f"nodes => 'node-1', {RANGE}, as_rate => true",
    "one node, one hour, summary": f"nodes => 'node-1', {RANGE}, summary => true",
    "ten nodes, one hour, all metrics": "nodes => '" + ",".join(f"node-{n}" for n in range(1, 11)) + f"', {RANGE}",
}


def timed(text):
    """Milliseconds of a statement in one session, without the first execution."""
    one = f"SELECT json_agg(r)::text FROM ({text}) AS r \\g /dev/null\n"
    script = one + "\\timing on\n" + one * ROUNDS
    command = ["psql", "-h", FOLDER, "-U", "kwuser_ro", "-d", "kwdb", "-qX", "-v", "ON_ERROR_STOP=1"]
    done = subprocess.run(command, input=script, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("Time:")]


def fill():
    """Dataset A: metrics of nodes at 1 Hz, one of them measured by a port with an alias."""
    sql(f"""INSERT INTO metrics SELECT to_timestamp(1767700000 + i), 'node-' || n, 'metric_' || m || CASE WHEN m < 3 THEN '_total' ELSE '' END,
        i * 1.25 + m, '{{"interface": "eth0"}}' FROM generate_series(0, {ROWS - 1}) AS i, generate_series(1, {NODES}) AS n,
        generate_series(1, {SERIES - 1}) AS m""")
    sql(f"""INSERT INTO metrics SELECT to_timestamp(1767700000 + i), 'pdu-port' || n, 'wattmetre_power_watt', 100 + i % 50,
        jsonb_build_object('_device_alias', 'node-' || n) FROM generate_series(0, {ROWS - 1}) AS i, generate_series(1, {NODES}) AS n""")
    sql("VACUUM ANALYZE metrics")


def main():
    server = start()
    try:
        kwollect()
        fill()
        rows = int(sql("SELECT count(*) FROM metrics"))
        print(f"{rows} rows, {int(sql('SELECT pg_total_relation_size(chr(109) || chr(101) || $$trics$$)')) / rows:.1f} bytes per row with indexes")
        before = {name: timed(f"SELECT * FROM api.get_metrics({call})") for name, call in QUERIES.items()}
        began = time.monotonic()
        done = subprocess.run([JOBMETER, "db", "setup", "--db_host", FOLDER], check=True, text=True, stdout=subprocess.PIPE)
        print(f"adoption: {time.monotonic() - began:.2f} s. " + next(line for line in done.stdout.splitlines() if line.startswith("Longest lock")))
        print(f"{'ms, median (least to greatest)':44}{'Kwollect':>30}{'jobmeter':>30}")
        for name, call in QUERIES.items():
            after = timed(f"SELECT * FROM api.get_metrics({call})")
            ratio = statistics.median(before[name]) / statistics.median(after)
            print(f"{name:44}{shown(before[name]):>30}{shown(after):>30}   {ratio:.1f} times")
    finally:
        stop(server)


main()
