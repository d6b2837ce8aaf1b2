"""The programs that are measured: how each is started, and how we know that it did its work."""

import os
import platform
import shutil
import socket
import subprocess
import tempfile
import time

from agent_jobs import JOBS
from agent_sinks import Batches, Charts, Lines, Pull, Scrapes


class Program:
    """A running program and its sink; a context manager that ends both."""

    name = ""
    what = ""
    # Minimum seconds of a measurement: one whole period of the program's slowest activity.
    seconds_min = 0

    def __init__(self, jobs, period):
        self.jobs = jobs
        self.period = period
        self.sink = None
        self.process = None
        self.folder = tempfile.mkdtemp(prefix="jobmeter-bench-")

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.sink:
            self.sink.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        """Starts the sink and the program."""
        raise NotImplementedError

    def fault(self):
        """Why what came is not what this program is measured for; empty if it is."""
        raise NotImplementedError

    def run(self, command, **variables):
        """Starts the program itself, with nothing else of ours in its environment."""
        environment = {"PATH": os.environ["PATH"], "HOME": self.folder, "LC_ALL": "C", **variables}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
            )

    @property
    def log(self):
        """Where what it says goes."""
        return os.path.join(self.folder, "log")

    def death(self):
        """How it ended, if it did, with the last line it said."""
        status = self.process.poll()
        if status is None:
            return ""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            lines = log.read().strip().splitlines()
        return f"ended with status {status}: {lines[-1] if lines else 'it said nothing'}"


class Agent(Program):
    """jobmeter-agent sending to a sink over HTTP, with its spool."""

    options = []
    # Metrics that every tick must contain.
    at_every_tick = []

    def start(self):
        """Jobs are looked for in the bench's place alone: others may run jobs beside it."""
        self.sink = Batches(self.period)
        config = os.path.join(self.folder, "agent.toml")
        with open(config, "w", encoding="ascii"):
            pass
        self.run(
            [
                os.path.abspath(os.environ["JOBMETER_AGENT_PROGRAM"]),
                *("--config", config, "--server", self.sink.url),
                *("--spool", os.path.join(self.folder, "spool")),
                *("--period", f"{self.period}s", "--jobs-schedulers", "oar", "--jobs-oar-roots", self.jobs.root),
                *(option.format(period=self.period) for option in self.options),
            ]
        )

    def fault(self):
        """Both jobs with all their tasks, and no tick left out."""
        tasks = sum(self.sink.values["cgroup_tasks", ""].values())
        if tasks != self.jobs.count:
            return f"it saw {tasks:.0f} tasks"
        ticks = self.sink.ticks()
        for metric in self.at_every_tick:
            values = self.sink.values[metric, ""]
            seen = len({second // self.period for second in self.sink.seconds[metric, ""]})
            if set(values) != set(JOBS):
                return f"{metric} came for {len(values)} jobs"
            # The agent may find the jobs only after the first ticks.
            if seen < ticks - 2:
                return f"{metric} came at {seen} of {ticks} ticks"
        return ""


class AgentDefault(Agent):
    """The agent as it comes, but for the period."""

    name = "agent-default"
    what = "jobmeter-agent, defaults"
    seconds_min = 30


class AgentAll(Agent):
    """The agent reading at every tick what colmet-node reads, and the rest of its sources."""

    name = "agent-all"
    what = "jobmeter-agent, taskstats and process at every tick"
    options = [
        *("--sources-taskstats-poll-s", "0", "--sources-taskstats-budget-ms", "10000"),
        *("--sources-process-period", "{period}s", "--source-budget", "10s"),
    ]
    at_every_tick = ["taskstats_tasks", "process_count"]


class AgentLight(Agent):
    """The agent with exit events, without polling tasks and without /proc/PID."""

    name = "agent-light"
    what = "jobmeter-agent, no taskstats polling, no /proc/PID"
    options = ["--sources-taskstats-poll-s", "3600", "--sources-process-enabled=false"]


class Colmet(Program):
    """colmet-node with its taskstats, procstats and jobproc backends."""

    name = "colmet"
    what = "colmet-node 0.6.10, taskstats, procstats and jobproc"

    def start(self):
        """Its own first idea of a job's place is replaced by the given one."""
        python = os.path.abspath(os.environ["COLMET_PYTHON"])
        self.sink = Pull(python)
        node = os.path.join(os.path.dirname(python), "colmet-node")
        self.run(
            [
                *(python, node, "-s", str(self.period), "--enable-jobproc"),
                *("--cpuset_rootpath", self.jobs.root, "--zeromq-uri", self.sink.url),
            ]
        )

    def fault(self):
        """A record of each per-job backend for each job."""
        _, records = self.sink.ask()
        wanted = {("procstats_default", "0")}
        for job in JOBS:
            wanted |= {("taskstats_default", str(job)), ("jobprocstats_default", str(job))}
        missing = sorted(wanted - {(backend, job) for backend, job, _ in records})
        return "it did not send " + ", ".join(map(":".join, missing)) if missing else ""


class NodeExporter(Program):
    """prometheus-node-exporter as it comes; it knows no jobs."""

    name = "node-exporter"
    what = "prometheus-node-exporter, defaults, scraped every {period} s; no jobs"

    def start(self):
        """It says nothing when it is ready, so it is asked until it answers."""
        port = free_port()
        program = peer("usr/bin/prometheus-node-exporter")
        self.run([program, f"--web.listen-address=127.0.0.1:{port}"])
        self.sink = Scrapes(port, self.period)
        until = time.monotonic() + 10
        while not self.sink.ticks() and time.monotonic() < until:
            time.sleep(0.1)

    def fault(self):
        """An answer has some length."""
        return "" if self.sink.series() > 100 else "its answers are empty"


class Netdata(Program):
    """Netdata as little more than a node's collector: it keeps 300 values of a series in memory, warns of
    nothing, learns nothing and has no cloud; all that its packages' core and shell plugins read by
    themselves."""

    name = "netdata"
    what = "netdata 1.37 with its plugins; no alarms, no learning, 300 values of each series in memory"

    def start(self):
        """All its folders are the bench's; `-D`: in the foreground."""
        port = free_port()
        # Disable netdata's anonymous statistics.
        for name in ("netdata.conf", ".opt-out-from-anonymous-statistics"):
            with open(os.path.join(self.folder, name), "w", encoding="ascii") as file:
                file.write(NETDATA.format(folder=self.folder, port=port, period=self.period, **FOLDERS))
        self.run([peer("usr/sbin/netdata"), "-D", "-c", f"{self.folder}/netdata.conf"], **LIBRARIES)
        self.sink = Charts(port, self.period)
        until = time.monotonic() + 20
        while not self.sink.ticks() and time.monotonic() < until:
            time.sleep(0.1)

    def fault(self):
        """Its charts have some dimensions."""
        return "" if self.sink.series() > 100 else "it has no charts"


class Collectd(Program):
    """collectd with the plugins that Debian's configuration loads and those that read more of a node,
    writing to Graphite instead of to files."""

    name = "collectd"
    what = "collectd, Debian's plugins and more of a node's"

    def start(self):
        """`-f`: in the foreground."""
        self.sink = Lines(self.period)
        config = os.path.join(self.folder, "collectd.conf")
        plugins = "\n".join(f"LoadPlugin {plugin}" for plugin in COLLECTD_PLUGINS)
        with open(config, "w", encoding="ascii") as file:
            file.write(
                COLLECTD.format(
                    folder=self.folder,
                    period=self.period,
                    port=self.sink.port,
                    plugins=plugins,
                    **FOLDERS,
                )
            )
        self.run([peer("usr/sbin/collectd"), "-f", "-C", config], **LIBRARIES)

    def fault(self):
        """It sends the load and more."""
        return "" if self.sink.series() > 50 else f"it sends {self.sink.series()} series"


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def peer(path):
    """A file of an unpacked package."""
    return os.path.join(PEERS, path)


PEERS = os.path.abspath(os.environ.get("PEERS", ""))
FOLDERS = {"peers": PEERS}
LIBRARIES = {"LD_LIBRARY_PATH": peer(f"usr/lib/{platform.machine()}-linux-gnu")}
NETDATA = """
[global]
    run as user = root
[directories]
    config = {folder}
    stock config = {peers}/usr/lib/netdata/conf.d
    log = {folder}
    cache = {folder}
    lib = {folder}
    home = {folder}
    web = {folder}
    plugins = {peers}/usr/lib/netdata/plugins.d
[db]
    mode = ram
    retention = 300
    update every = {period}
[health]
    enabled = no
[ml]
    enabled = no
[cloud]
    enabled = no
[web]
    bind to = 127.0.0.1:{port}
[statsd]
    enabled = no
"""
COLLECTD = """
BaseDir "{folder}"
PIDFile "{folder}/pid"
PluginDir "{peers}/usr/lib/collectd"
TypesDB "{peers}/usr/share/collectd/types.db"
Interval {period}
Hostname "n1"
FQDNLookup false
{plugins}
LoadPlugin write_graphite
<Plugin write_graphite>
  <Node "sink">
    Host "127.0.0.1"
    Port "{port}"
    Protocol "tcp"
  </Node>
</Plugin>
"""
# The first plugins are those of Debian's configuration.
COLLECTD_PLUGINS = (
    *("battery", "cpu", "df", "disk", "entropy", "interface", "irq", "load", "memory"),
    *("processes", "swap", "users"),
    *("cgroups", "contextswitch", "cpufreq", "fscache", "hugepages", "ipc", "nfs", "numa"),
    *("protocols", "tcpconns", "thermal", "uptime", "vmem"),
)

PROGRAMS = (AgentDefault, AgentAll, AgentLight, Colmet, NodeExporter, Netdata, Collectd)
