"""Records dataset B: what one agent sends in an hour of a node with twenty jobs at work, frame by frame.

    python3 -B benches/dataset_b.py FRAMES [SECONDS]

Needs root and a release build of the agent, as agent.sh does. The agent has its defaults, all sources and
a period of 5 s, and looks for jobs in this program's own cgroups. Twenty jobs work all the time, four of
each kind below; those of the last kind end after ten minutes, and others begin. Together they take about a
twentieth of one processor, so that an hour of it disturbs nobody; what else the machine does is recorded too.

`cargo bench -p query --bench dataset_b` weighs it. It is not kept in the repository: 5 MB of one machine.
"""

import ctypes
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import agent_jobs
from agent_sinks import Batches

ROOT = "jobmeter-dataset-b"
PERIOD_S = 5
SHORT_S = 600


def compute(dice, _):
    """Calculates in bursts, as a step of a simulation between two exchanges does."""
    until = time.monotonic() + dice.uniform(0.01, 0.2)
    while time.monotonic() < until:
        sum(n * n for n in range(1000))
    time.sleep(dice.uniform(0.5, 4))


def memory(dice, kept):
    """Takes memory and gives it back, touching all of it."""
    kept[:] = kept[-dice.randrange(1, 8) :]
    kept.append(bytearray(os.urandom(4096) * dice.randrange(64, 1024)))
    time.sleep(dice.uniform(0.5, 6))


def disk(dice, kept):
    """Writes a file, forces it to the disk at times, reads it again."""
    if not kept:
        kept.append(tempfile.TemporaryFile())
    file = kept[0]
    file.seek(0)
    file.truncate()
    file.write(os.urandom(dice.randrange(1 << 10, 1 << 20)))
    file.flush()
    if dice.random() < 0.3:
        os.fsync(file.fileno())
    file.seek(0)
    file.read()
    time.sleep(dice.uniform(0.2, 5))


def idle(dice, _):
    """Waits, as a session whose user is away does."""
    time.sleep(dice.uniform(20, 60))


def commands(dice, _):
    """Runs short programs one after another, as a script does."""
    subprocess.run(["gzip", "-c", __file__], stdout=subprocess.DEVNULL, check=True)
    time.sleep(dice.uniform(0.5, 3))


KINDS = {work.__name__: work for work in (compute, memory, disk, idle, commands)}


class Job:
    """One job at work in cgroups of its own."""

    def __init__(self, roots, number, kind):
        self.directories = [os.path.join(root, f"bench_{number}") for root in roots]
        for directory in self.directories:
            agent_jobs.add(directory)
        self.kind = kind
        self.since = time.monotonic()
        command = [sys.executable, "-B", "-S", "-E", __file__, "work", kind, str(number)]
        self.process = subprocess.Popen(command + self.directories, stdin=subprocess.DEVNULL)

    def end(self):
        """Ends the work and removes the cgroups."""
        self.process.terminate()
        self.process.wait()
        for directory in self.directories:
            agent_jobs.remove(directory)


def work(kind, number, directories):
    """What the process of a job does until it is ended; with it end its children."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    ctypes.CDLL(None).prctl(agent_jobs.PR_SET_PDEATHSIG, signal.SIGTERM)
    for directory in directories:
        with open(os.path.join(directory, "cgroup.procs"), "w", encoding="ascii") as procs:
            procs.write(str(os.getpid()))
    dice, kept = random.Random(number), []
    while True:
        KINDS[kind](dice, kept)


class Recorder(Batches):
    """A server that acknowledges every batch and writes its frame to a file."""

    def __init__(self, path):
        self._file = open(path, "wb", buffering=0)
        super().__init__()

    def take(self, frames):
        """Adds the frames of a request, which are whole."""
        answer = super().take(frames)
        with self._lock:
            self._file.write(frames)
        return answer


def record(path, seconds):
    """Runs agent and jobs for so long."""
    roots = [os.path.join(os.path.dirname(root), ROOT) for root in agent_jobs.roots()]
    jobs, made, agent = [], [], None
    with tempfile.TemporaryDirectory(prefix="jobmeter-bench-") as folder:
        try:
            for root in roots:
                made.append(root)
                agent_jobs.add(root)
            kinds = [kind for kind in KINDS for _ in range(4)]
            number = 5000
            for kind in kinds:
                number += 1
                jobs.append(Job(roots, number, kind))
            recorder = Recorder(path)
            agent = start_agent(recorder.url, roots[0], folder)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                time.sleep(PERIOD_S)
                if agent.poll() is not None:
                    raise RuntimeError(f"the agent ended with {agent.returncode}")
                for place, job in enumerate(jobs):
                    ends = job.since + SHORT_S + 60 * (place % 4)
                    if job.kind == "commands" and time.monotonic() > ends:
                        job.end()
                        number += 1
                        jobs[place] = Job(roots, number, job.kind)
            print(f"{recorder.samples} samples, {recorder.bytes} bytes in frames, {number - 5000} jobs")
        finally:
            if agent:
                agent.terminate()
                agent.wait()
            for job in jobs:
                job.end()
            for root in reversed(made):
                agent_jobs.remove(root)


def start_agent(url, root, folder):
    """The agent with its defaults, but for where it sends and where jobs are."""
    program = os.environ.get("JOBMETER_AGENT_PROGRAM", "target/release/jobmeter-agent")
    config = os.path.join(folder, "agent.toml")
    with open(config, "w", encoding="ascii"):
        pass
    options = ["--config", config, "--server", url, "--spool", os.path.join(folder, "spool")]
    options += ["--period", f"{PERIOD_S}s", "--jobs-schedulers", "oar", "--jobs-oar-roots", root]
    return subprocess.Popen([os.path.abspath(program), *options], stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    else:
        record(sys.argv[1], int((sys.argv[2:] or ["3600"])[0]))
