"""Measures the poller on simulated devices, beside kwollector where that sustains the load.

usage: polls.py [exporters] [snmp] [beside] [postgres] [devices] [outage] [insert]   (all of them without a word)

Starts the release programs (those of PROFILE=debug) on loopback with empty stores; SECONDS_EACH (60) of each load. `beside` and `postgres` need
PostgreSQL 15, install kwollector below target/bench, and run as root. Prints one line a load. The targets share the machine's processors.
"""

import concurrent.futures
import datetime
import http.client
import json
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = ROOT / "target" / os.environ.get("PROFILE", "release")
KWOLLECT = ROOT / "target/bench/kwollect"
SECONDS = int(os.environ.get("SECONDS_EACH", "60"))
HTTP, JSON, MODBUS, SNMP, SLOW, LYING, DEAD = 29100, 29101, 29102, 29161, 29103, 29104, 29105
POSTGRESQL = pathlib.Path("/usr/lib/postgresql/15/bin")
TABLE = "1.3.6.1.4.1.99999.1"


def host(number, net=1):
    return f"127.{net}.{number // 250}.{number % 250 + 1}"


def cpu(pid):
    """Processor seconds of a process until now."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Program:
    """A program whose memory is looked at each second."""

    def __init__(self, command, env, **more):
        self.process = subprocess.Popen([str(word) for word in command], env=env, **more)
        self.rss_kib, self.ended = [], threading.Event()
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()

    def watch(self):
        while not self.ended.wait(1):
            try:
                status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
            except OSError:
                return
            self.rss_kib += [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")]

    def end(self, how=signal.SIGTERM):
        """Ends it; returns processor seconds and the peak of memory in MiB."""
        self.ended.set()
        self.watcher.join()
        self.process.send_signal(how)
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = status
        return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024

    def peak_kib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))

    def cpu(self):
        return cpu(self.process.pid)

    def slope(self):
        """Growth of memory over the second half, in MiB per minute."""
        half = self.rss_kib[len(self.rss_kib) // 2:]
        if len(half) < 2:
            return 0.0
        return statistics.linear_regression(range(len(half)), half).slope * 60 / 1024


class Database:
    """PostgreSQL in a new folder."""

    AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    PORT = "29432"

    def __init__(self, folder):
        self.folder = folder
        folder.parent.chmod(0o755)
        folder.mkdir()
        shutil.chown(folder, "postgres")
        self.run("initdb", "-D", folder, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
        options = f"-p {self.PORT} -k {folder} -c listen_addresses=127.0.0.1 -c shared_buffers=1GB"
        self.run("pg_ctl", "-D", folder, "-w", "-l", folder / "log", "-o", options, "start")

    def run(self, program, *arguments):
        command = [*self.AS_POSTGRES, POSTGRESQL / program, *arguments]
        return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, cwd="/").stdout

    def psql(self, query):
        return self.run("psql", "-h", self.folder, "-p", self.PORT, "-Atc", query, "postgres").strip()

    def end(self):
        self.run("pg_ctl", "-D", self.folder, "-m", "immediate", "stop")


class Site:
    """A server with an empty store, targets, and the folder of descriptions."""

    def __init__(self, plan, on_postgres=False):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="polls-"))
        self.files, self.log = self.dir / "metrics.d", self.dir / "log"
        self.files.mkdir()
        self.env = {**os.environ, "XDG_STATE_HOME": str(self.dir), "XDG_RUNTIME_DIR": str(self.dir), "JOBMETER_POLLER_FILE": "/dev/null"}
        (self.dir / "plan").write_text(json.dumps(plan))
        targets = [sys.executable, "-B", ROOT / "benches/poll_targets.py", self.dir / "plan"]
        self.targets = subprocess.Popen(targets, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.targets.stdout.readline() == "ready\n"
        self.port, self.url, self.server = "0", "", None
        self.database = Database(self.dir / "postgres") if on_postgres else None
        self.serve()

    def serve(self):
        command = [BUILT / "jobmeter-server", "--data", self.dir / "store", "--listen", f"127.0.0.1:{self.port}", "--query-time-max", "5m"]
        if self.database:
            command += ["--store", "postgres", "--postgres-database", f"host={self.database.folder} port={Database.PORT} user=postgres dbname=postgres"]
        self.server = Program(command, self.env, stdout=subprocess.PIPE, text=True)
        self.url = self.server.process.stdout.readline().split()[-1]
        self.port = self.url.rsplit(":", 1)[1]

    def poll(self, *flags):
        command = [BUILT / "jobmeter-poller", "poll", self.files, "--server", self.url, "--spool", self.dir / "spool", "--name", "bench", *flags]
        with open(self.log, "w") as log:
            return Program(command, self.env, stderr=log)

    def sql(self, query):
        command = [BUILT / "jobmeter", "sql", "--csv", "--server", self.url, query]
        return subprocess.run(command, check=True, env=self.env, capture_output=True, text=True).stdout.splitlines()[-1]

    def targets_cpu(self):
        """Processor seconds of the targets until now."""
        children = pathlib.Path(f"/proc/{self.targets.pid}/task/{self.targets.pid}/children").read_text()
        return sum(map(cpu, children.split()))

    def counts(self):
        """How often the targets answered, from now on constant."""
        out, _ = self.targets.communicate("")
        return json.loads(out)

    def end(self):
        used = self.server.end()
        if self.targets.poll() is None:
            self.targets.communicate("")
        if self.database:
            self.database.end()
        shutil.rmtree(self.dir)
        return used


def exporters(files, count, period_ms):
    for number in range(count):
        url = f"prometheus://{host(number)}:{HTTP}/"
        (files / f"exporter-{number}").write_text(f"- {{name: all, device_id: exporter-{number}, url: '{url}', update_every: {period_ms}}}\n")


def agents(files, count, oids, port=SNMP, period_ms=1000):
    for number in range(count):
        entry = "- {{name: port_bytes_{0}, device_id: switch-{1}, url: 'snmp://public@{2}{3}/{4}', update_every: {5}}}\n"
        at = "" if port == 161 else f":{port}"
        text = "".join(entry.format(place, number, host(number, 2), at, oid, period_ms) for place, oid in enumerate(oids))
        (files / f"switch-{number}").write_text(text)


def oids_of(count):
    return [f"{TABLE}.{column + 1}.{row + 1}" for column in range(15) for row in range(count // 15)]


def report(what, rows, stored, took, used, program):
    cpu, rss = used
    print(f"{what}: {stored} of {rows} rows stored ({stored / took:.0f} rows/s); poller {cpu / stored * 1e6:.2f} µs CPU a row, "
          f"{cpu / took * 100:.1f} % of a core, RSS {rss:.0f} MiB, {program.slope():+.2f} MiB a minute", flush=True)


STORED = "SELECT count(*) FROM metrics WHERE (metric_id = 'prom_bench_value' OR metric_id LIKE 'port_bytes_%')"


def load(what, site, per_answer, count_of):
    poller, begun = site.poll(), time.monotonic()
    time.sleep(SECONDS)
    used = poller.end()
    took = time.monotonic() - begun
    rows = site.counts()[count_of] * per_answer
    stored = int(site.sql(STORED))
    report(what, rows, stored, took, used, poller)
    site.end()


def measure_exporters():
    site = Site({"lines": 1000, "http_port": HTTP})
    exporters(site.files, 500, 5000)
    load("500 exporters x 1000 lines at 5 s", site, 1000, "scrapes")


def snmp_plan(devices, oids, port):
    return {"snmp": [host(number, 2) for number in range(devices)], "oids": [*oids, "1.3.6.1.2.1.1.3.0"], "snmp_port": port}


def measure_snmp():
    oids = oids_of(750)
    site = Site(snmp_plan(60, oids, SNMP))
    agents(site.files, 60, oids)
    load("SNMP, 60 devices x 750 OIDs at 1 s", site, 1, "variables")


def can_run_kwollector():
    if os.geteuid() != 0 or not POSTGRESQL.is_dir():
        print(f"not measured beside kwollector: it needs root and {POSTGRESQL}", flush=True)
        return False
    if not (KWOLLECT / "bin/kwollector").exists():
        subprocess.run([sys.executable, "-m", "venv", KWOLLECT], check=True)
        subprocess.run([KWOLLECT / "bin/pip", "install", "--quiet", "kwollect==1.3.1", "orjson"], check=True)
    return True


def beside_kwollector(plan, describe, what, on_postgres=False):
    for _ in range(int(os.environ.get("ROUNDS", "2"))):
        for name, measure in (("poller", measure_poller), ("kwollector", measure_kwollector)):
            site = Site(plan, on_postgres and name == "poller")
            describe(site.files)
            print(f"{name}, {what}: {measure(site)}", flush=True)
            if site.database:
                print(f"its server: RSS {site.server.slope():+.2f} MiB a minute", flush=True)
            site.end()


def measure_beside():
    """Loads that kwollector sustains, in turn with it."""
    if not can_run_kwollector():
        return
    exporters_of_100 = lambda files: exporters(files, 100, 5000)
    beside_kwollector({"lines": 500, "http_port": HTTP}, exporters_of_100, "100 exporters x 500 lines at 5 s (10000 rows/s)")
    plan, oids = snmp_plan(60, oids_of(150), 161), oids_of(150)
    beside_kwollector(plan, lambda files: agents(files, 60, oids, port=161), "SNMP, 60 devices x 150 OIDs at 1 s (9000 rows/s)")


def measure_postgres():
    """More than kwollector stores; the server has its samples in PostgreSQL."""
    if can_run_kwollector():
        describe = lambda files: exporters(files, 500, 5000)
        beside_kwollector({"lines": 1000, "http_port": HTTP}, describe, "500 exporters x 1000 lines at 5 s (100000 rows/s), PostgreSQL", True)


def steady(program, stored_between):
    """What a program stores and uses after a start of 20 s, in which kwollector reads its files."""
    time.sleep(20)
    before, begun = program.cpu(), time.time()
    time.sleep(SECONDS)
    seconds, ended = program.cpu() - before, time.time()
    rss, (_, peak) = statistics.median(program.rss_kib[-20:]) / 1024, program.end()
    stored = stored_between(begun, ended)
    return (f"{stored / (ended - begun):.0f} rows/s stored; {seconds / stored * 1e6:.2f} µs CPU a row, {seconds / (ended - begun) * 100:.1f} % of a core, "
            f"RSS {rss:.0f} MiB, greatest {peak:.0f} MiB")


def instant(seconds):
    return f"TIMESTAMP '{datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat()}'"


def measure_poller(site):
    return steady(site.poll(), lambda begun, ended: int(site.sql(f"{STORED} AND timestamp >= {instant(begun)} AND timestamp < {instant(ended)}")))


def measure_kwollector(site):
    database = Database(site.dir / "kwollect")
    try:
        database.psql("CREATE TABLE metrics (timestamp timestamptz, device_id text, metric_id text, value double precision, labels jsonb);"
                      "CREATE INDEX ON metrics (timestamp DESC); CREATE INDEX ON metrics (device_id, timestamp DESC);"
                      "CREATE INDEX ON metrics ((labels->>'_device_alias'), timestamp DESC) WHERE labels ? '_device_alias';"
                      "CREATE TABLE promoted_metrics (device_id text, metric_id text)")
        command = [KWOLLECT / "bin/kwollector", "--metrics_dir", f"{site.files}/", "--db_host", "127.0.0.1", "--db_name", "postgres", "--db_user", "postgres"]
        program = Program(command, {**site.env, "PGPORT": Database.PORT})
        between = "SELECT count(*) FROM metrics WHERE timestamp >= to_timestamp({}) AND timestamp < to_timestamp({})"
        return steady(program, lambda begun, ended: int(database.psql(between.format(begun, ended))))
    finally:
        database.end()


def write_devices(files, oids, timeout):
    """5 000 devices of mixed protocols with 10 values each at 5 s; of each tenth one is dead, slow or lying."""
    for number in range(5000):
        name, bad = f"device-{number}", number // 10 % 10 == 9
        odd = (DEAD, SLOW, LYING)[number // 100 % 3]
        at, every = host(number, 3), f"update_every: 5000, timeout: {timeout}"
        kind = number % 5
        if kind < 2:
            lines = [f"- {{name: all, device_id: {name}, url: 'prometheus://{at}:{odd if bad else HTTP}/', {every}}}"]
        elif kind == 2:
            lines = [f"- {{name: value_{n}, device_id: {name}, url: 'http://{at}:{odd if bad else JSON}/#v{n}', {every}}}" for n in range(10)]
        elif kind == 3:
            lines = [f"- {{name: value_{n}, device_id: {name}, url: 'modbus://{at}:{odd if bad else MODBUS}/1/{n * 2}/be_be_f32', {every}}}" for n in range(10)]
        else:
            agent = host(number // 5 if not bad else 1500 + number, 2)
            lines = [f"- {{name: value_{n}, device_id: {name}, url: 'snmp://public@{agent}:{SNMP}/{oid}', {every}}}" for n, oid in enumerate(oids)]
        (files / name).write_text("\n".join(lines) + "\n")


def reload(site, poller, timeout, oids):
    """Writes all files and sends SIGHUP. Returns the seconds until the poller has read them, and the greatest RSS in MiB from then to 30 s later."""
    write_devices(site.files, oids, timeout)
    is_read = lambda line: "polls 5000 targets" in line
    before = sum(map(is_read, site.log.read_text().splitlines()))
    # The greatest RSS is counted again from now on.
    pathlib.Path(f"/proc/{poller.process.pid}/clear_refs").write_text("5")
    begun = datetime.datetime.now(datetime.timezone.utc)
    poller.process.send_signal(signal.SIGHUP)
    time.sleep(30)
    lines = list(filter(is_read, site.log.read_text().splitlines()))
    ended = datetime.datetime.fromisoformat(lines[before].split()[0])
    return (ended - begun).total_seconds(), poller.peak_kib() / 1024


def measure_devices():
    oids = oids_of(15)[:10]
    site = Site({"lines": 10, "http_port": HTTP, "json_port": JSON, "modbus_port": MODBUS, "slow_port": SLOW, "lying_port": LYING,
                 **snmp_plan(1500, oids, SNMP)})
    write_devices(site.files, oids, 4999)
    poller, begun = site.poll("--log-level", "info"), time.time()
    time.sleep(max(SECONDS, 60))
    steady = f"timestamp BETWEEN {instant(begun + 15)} AND {instant(time.time())}"
    rss, peak = statistics.median(poller.rss_kib[-20:]) / 1024, poller.peak_kib() / 1024
    slope, answering = poller.slope(), site.targets_cpu()
    same, changed = (reload(site, poller, timeout, oids) for timeout in (4999, 4998))
    used = poller.end()
    well = "NOT regexp_like(device_id, '9[0-9]$')"
    ticks = site.sql("SELECT min(n) || ' to ' || max(n) || ' of ' || count(*) FROM (SELECT device_id, count(*) AS n FROM metrics WHERE "
                     f"metric_id = 'poll_success' AND value = 1 AND {well} GROUP BY device_id)")
    # From the device's own instant within the first tenth of the period to the begin of the exchange.
    late = [site.sql(f"SELECT approx_percentile_cont(value, 0.5) || ' and ' || approx_percentile_cont(value, 0.99) || ', most ' || max(value) FROM metrics WHERE metric_id = 'poll_lateness_seconds' AND {well} AND {when}")
            for when in ("true", steady)]
    gaps = site.sql("SELECT count(*) FROM metrics WHERE metric_id = 'poll_success' AND value = 0 AND " + well)
    print(f"5000 devices: successful polls of each of the devices that work: {ticks}; failed polls of these {gaps}; lateness in s p50 and p99 {late[0]}, from 15 s to the first reload {late[1]}; "
          f"poller {used[0]:.1f} s CPU, targets {answering:.1f} s until the first reload, RSS {rss:.0f} MiB, greatest {peak:.0f} MiB, {slope:+.2f} MiB a minute; all files read again in "
          f"{same[0]:.2f} s unchanged (RSS at most {same[1]:.0f} MiB), {changed[0]:.2f} s with a change of each entry (RSS at most {changed[1]:.0f} MiB)", flush=True)
    site.end()


def measure_outage():
    site = Site({"lines": 1000, "http_port": HTTP})
    exporters(site.files, 100, 5000)
    poller, begun = site.poll(), time.monotonic()
    time.sleep(SECONDS / 3)
    site.server.end()
    time.sleep(9)
    site.serve()
    # The spool is sent, too.
    time.sleep(max(SECONDS / 3, 25))
    used = poller.end()
    took = time.monotonic() - begun
    rows = site.counts()["scrapes"] * 1000
    stored = int(site.sql("SELECT count(*) FROM metrics WHERE metric_id = 'prom_bench_value'"))
    report("server stopped for 9 s, 100 exporters x 1000 lines at 5 s", rows, stored, took, used, poller)
    site.end()


def measure_insert():
    site = Site({})
    for clients in (1, 4):
        times = []

        def insert(client):
            connection = http.client.HTTPConnection("127.0.0.1", int(site.port))
            end = time.monotonic() + SECONDS / 3
            while time.monotonic() < end:
                now = time.time()
                rows = [{"device_id": f"meter-{client}-{n}", "metric_id": "bench_watt", "value": n / 10, "timestamp": now} for n in range(1000)]
                begun = time.monotonic()
                connection.request("POST", "/rpc/insert_metrics", json.dumps(rows), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                body = answer.read()
                if answer.status == 429:
                    time.sleep(float(answer.headers["Retry-After"]))
                    continue
                assert answer.status == 200, body
                times.append(time.monotonic() - begun)

        begun = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            list(pool.map(insert, range(clients)))
        took, times = time.monotonic() - begun, sorted(times)
        print(f"insert_metrics, {clients} clients, 1000 rows a request: {len(times) * 1000 / took:.0f} rows/s, "
              f"p50 {times[len(times) // 2] * 1000:.1f} ms, p99 {times[len(times) * 99 // 100] * 1000:.1f} ms", flush=True)
    site.end()


def main():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loads = {"exporters": measure_exporters, "snmp": measure_snmp, "beside": measure_beside, "postgres": measure_postgres, "devices": measure_devices,
             "outage": measure_outage, "insert": measure_insert}
    for word in sys.argv[1:] or loads:
        loads[word]()


main()
