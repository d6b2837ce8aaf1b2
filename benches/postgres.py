"""Measures the server on PostgreSQL, beside Kwollect's own functions on the same database machine, and beside the embedded store.

usage: postgres.py [ROWS_PER_SERIES [NODES]]   default: 3600 100 (dataset A: ten metrics of each node at 1 Hz, 3.6 million rows)

It needs PostgreSQL with plpython3, target/python (made by `make test`), and the release programs (those of PROFILE=debug). Three servers answer
for the same rows: on an adopted database of Kwollect (rows of another program), on a database of their own, and on the embedded store. The rows of
the latter two are inserted over HTTP. Queries of all sides take turns. Prints the median, least and greatest milliseconds; the database is removed.
"""

import http.client
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from cluster import FOLDER, ROOT, kwollect, shown, sql, start, stop

sys.path += map(str, (ROOT / "target/python/lib").glob("python3*/site-packages"))
import psycopg  # noqa: E402

ROWS, NODES = (int(word) for word in (sys.argv[1:] + ["3600", "100"][len(sys.argv) - 1:])[:2])
BUILT = ROOT / "target" / os.environ.get("PROFILE", "release")
BEGIN = int(time.time()) // 3600 * 3600 - 7200
ROUNDS, EACH_SECONDS, SOME = 9, 10, 10_000
# Of each node; the last is measured by a port of a PDU, with an alias.
METRICS = [
    ("prom_node_cpu_seconds_total", {"mode": "idle", "cpu": "0"}),
    ("prom_node_memory_MemAvailable_bytes", {}),
    ("prom_node_memory_MemTotal_bytes", {}),
    ("prom_node_network_receive_bytes_total", {"device": "eth0"}),
    ("prom_node_network_transmit_bytes_total", {"device": "eth0"}),
    *((f"bench_{n}_celsius", {"sensor": str(n)}) for n in range(4)),
    ("wattmetre_power_watt", None),
]
RANGE = {"start_time": str(BEGIN), "end_time": str(BEGIN + 3599)}
TEN = ",".join(f"node-{n}" for n in range(1, 11))
QUERIES = {
    "one node, one hour, ten metrics": {"nodes": "node-1", **RANGE},
    "one node, one hour, its wattmeter by alias": {"nodes": "node-1", "metrics": "wattmetre_power_watt", **RANGE},
    "one node, five minutes, ten metrics": {"nodes": "node-1", "start_time": str(BEGIN), "end_time": str(BEGIN + 299)},
    "one node, one hour, as rates": {"nodes": "node-1", "as_rate": "true", **RANGE},
    "one node, one hour, summary": {"nodes": "node-1", "summary": "true", **RANGE},
    "ten nodes, one hour, ten metrics": {"nodes": TEN, **RANGE},
}


def call(query):
    return "SELECT * FROM api.get_metrics(" + ", ".join(f"{key} => '{value}'" for key, value in query.items()) + ")"


def rows_of(node):
    """The rows of a node as JSON objects, as a sender of Kwollect inserts them."""
    for place, (metric, labels) in enumerate(METRICS):
        device, labels = (f"node-{node}", labels) if labels is not None else (f"pdu-port{node}", {"_device_alias": f"node-{node}"})
        for second in range(ROWS):
            value = second * 1.25 + node if metric.endswith("_total") else 100 + (second * (place + 3) + node) % 50 / 10
            yield {"timestamp": BEGIN + second, "device_id": device, "metric_id": metric, "value": value, "labels": labels}


class Server:
    def __init__(self, *options):
        self.dir = Path(tempfile.mkdtemp(prefix="postgres-bench-"))
        self.pg = self.dir / "pg"
        self.pg.mkdir()
        limits = ["--push-rows-per-second-max", "100000000", "--push-rows-per-request-max", str(SOME), "--query-time-max", "5m"]
        command = [BUILT / "jobmeter-server", "--data", self.dir / "data", "--listen", "127.0.0.1:0", "--pg-listen", self.pg, *limits, *options]
        env = {**os.environ, "XDG_STATE_HOME": str(self.dir), "XDG_RUNTIME_DIR": str(self.dir), "JOBMETER_POLLER_FILE": "/dev/null"}
        self.process = subprocess.Popen(list(map(str, command)), env=env, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[-1].rsplit(":", 1)[1])
        self.connection = self.connect()
        nodes = [f"node-{n}" for n in range(1, min(50, NODES) + 1)]
        job = {"cluster": "oar", "id": 7, "user": "alice", "uid": 1000, "submit": BEGIN, "start": BEGIN, "stop": BEGIN + 3600,
               "nodes": [{"device": node} for node in nodes]}
        self.request(self.connection, "POST", "/api/v1/jobs", json.dumps(job))

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    @staticmethod
    def request(connection, method, path, body=None):
        for _ in range(2):
            connection.request(method, path, body, {"Content-Type": "application/json"})
            try:
                answer = connection.getresponse()
                break
            except http.client.RemoteDisconnected:
                # The server closed the idle connection.
                connection.close()
        text = answer.read()
        assert answer.status == 200, (path, answer.status, text[:500])
        return text

    def insert(self):
        """Inserts all rows; returns the rows per second."""
        used, count = 0.0, 0
        for node in range(1, NODES + 1):
            rows = list(rows_of(node))
            for at in range(0, len(rows), SOME):
                body = json.dumps(rows[at:at + SOME])
                begun = time.monotonic()
                self.request(self.connection, "POST", "/rpc/insert_metrics", body)
                used, count = used + time.monotonic() - begun, count + len(rows[at:at + SOME])
        return count / used

    def get(self, query, connection=None):
        path = "/rpc/get_metrics?" + "&".join(f"{key}={value}" for key, value in query.items())
        return self.request(connection or self.connection, "GET", path)

    def memory_kib(self, field):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field))

    def growth_mib(self, query):
        """Most memory during a query beyond that before it."""
        before = self.memory_kib("VmRSS")
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        self.get(query)
        return (self.memory_kib("VmHWM") - before) / 1024

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        shutil.rmtree(self.dir)


def fill_kwollect():
    """The same rows in Kwollect's table, by a COPY."""
    command = ["psql", "-h", FOLDER, "-U", "postgres", "-d", "kwdb", "-qX", "-c", "COPY metrics FROM STDIN"]
    psql = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    for node in range(1, NODES + 1):
        for row in rows_of(node):
            at = time.strftime("%Y-%m-%d %H:%M:%S+00", time.gmtime(row["timestamp"]))
            psql.stdin.write(f"{at}\t{row['device_id']}\t{row['metric_id']}\t{row['value']}\t{json.dumps(row['labels'])}\n")
    psql.stdin.close()
    assert psql.wait() == 0
    sql("VACUUM ANALYZE metrics")


def session(host, user="kwuser_ro", database="kwdb"):
    return psycopg.connect(f"host={host} user={user} dbname={database}", autocommit=True).pgconn


def run(pgconn, statement):
    result = pgconn.exec_(statement.encode())
    assert result.status in (psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK), result.error_message
    return result


def milliseconds(what):
    begun = time.perf_counter()
    what()
    return (time.perf_counter() - begun) * 1000


def as_json(query):
    """PostgREST executes a function so."""
    return f"SELECT json_agg(r)::text FROM ({call(query)}) AS r"


def compare(sides):
    """`sides`: by name, what answers a query. Each round asks all sides."""
    print(f"{'ms, median (least to greatest)':44}" + "".join(f"{name:>32}" for name in sides))
    for what, query in QUERIES.items():
        times = {name: [] for name in sides}
        for each in range(ROUNDS + 1):
            for name, answer in sides.items():
                took = milliseconds(lambda: answer(query))
                times[name] += [took] if each else []
        print(f"{what:44}" + "".join(f"{shown(of):>32}" for of in times.values()), flush=True)


def rate_of_four(answer_of):
    """Answers per second of four clients at once; `answer_of` makes a client."""
    counts, ends = [], time.monotonic() + EACH_SECONDS

    def client():
        answer, count = answer_of(), 0
        while time.monotonic() < ends:
            answer(QUERIES["one node, one hour, ten metrics"])
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / EACH_SECONDS


def by_http(server):
    def client():
        connection = server.connect()
        return lambda query: server.get(query, connection)
    return client


def by_kwollect():
    pgconn = session(FOLDER)
    return lambda query: run(pgconn, as_json(query))


def measure(adopted, own, embedded):
    kwollects, wire, wire_own = by_kwollect(), session(embedded.pg, "root", "jobmeter"), session(own.pg, "root", "jobmeter")
    compare({
        "Kwollect's function": kwollects,
        "HTTP, adopted": adopted.get,
        "HTTP, PostgreSQL": own.get,
        "protocol, PostgreSQL": lambda query: run(wire_own, call(query)),
        "HTTP, embedded": embedded.get,
        "protocol, embedded": lambda query: run(wire, call(query)),
    })
    for name, server in (("adopted", adopted), ("PostgreSQL", own), ("embedded", embedded)):
        growth = statistics.median(server.growth_mib(QUERIES["ten nodes, one hour, ten metrics"]) for _ in range(5))
        print(f"ten nodes, one hour: memory of the server ({name}) grows by {growth:.0f} MiB")
    rates = {"Kwollect's function": rate_of_four(by_kwollect), "adopted": rate_of_four(by_http(adopted)),
             "PostgreSQL": rate_of_four(by_http(own)), "embedded": rate_of_four(by_http(embedded))}
    print("one node, one hour, four clients at once, queries per second: " + ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items()), flush=True)
    for name, server in (("adopted", adopted), ("PostgreSQL", own), ("embedded", embedded)):
        path = "/rpc/get_job_metrics?job_id=7"
        times = [milliseconds(lambda: server.request(server.connection, "GET", path)) for _ in range(3)]
        print(f"get_job_metrics, six requests, {min(50, NODES)} nodes, one hour ({name}): {shown(times)} ms", flush=True)


def main():
    database, servers = start(), []
    try:
        kwollect()
        fill_kwollect()
        sql("CREATE DATABASE kwadopted TEMPLATE kwdb", database="postgres")
        setup = [BUILT / "jobmeter", "db", "setup", "--db_host", FOLDER, "--kwollect_password", "secret"]
        for more in (["--kwollect_db_name", "kwadopted"], ["--kwollect_db_name", "jmdb", "--kwollect_user", "jobmeter"]):
            subprocess.run([*setup, *more], check=True, stdout=subprocess.DEVNULL)
        for name, user in (("kwadopted", "kwuser"), ("jmdb", "jobmeter")):
            servers.append(Server("--store", "postgres", "--postgres-database", f"host={FOLDER} user={user} dbname={name}"))
        servers.append(Server())
        adopted, own, embedded = servers
        for name, server in (("PostgreSQL", own), ("embedded", embedded)):
            print(f"insert_metrics of {SOME} rows a request, one client ({name}): {server.insert():.0f} rows/s", flush=True)
        count = NODES * ROWS * len(METRICS)
        size = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE relkind = 'r' AND relnamespace IN ('public'::regnamespace, 'jobmeter'::regnamespace)"
        for name in ("kwdb", "jmdb"):
            size_of = size.replace(", 'jobmeter'::regnamespace", "") if name == "kwdb" else size
            print(f"bytes per row with indexes ({name}): {int(sql(size_of, database=name)) / count:.1f}")
        sql("VACUUM ANALYZE", database="jmdb")
        sql("VACUUM ANALYZE", database="kwadopted")
        measure(adopted, own, embedded)
    finally:
        for server in servers:
            server.end()
        stop(database)


main()
