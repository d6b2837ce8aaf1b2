"""Jobs to measure agents on: cgroups laid out as OAR does, with tasks in them that sleep.

Run as a program, this file is the first task of one job: `agent_jobs.py KIND COUNT DIRECTORY...`
joins the directories, makes the other tasks, prints a line and sleeps until it is ended.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

ROOT = "jobmeter-bench"
JOBS = (1001, 1002)
CONTROLLERS = ("cpuset", "cpu", "cpuacct", "memory", "blkio", "pids")
CGROUPS = "/sys/fs/cgroup"
# Descriptions of the kinds of tasks.
KINDS = {
    "threads": "threads of one process a job",
    "spread": "threads in 20 processes",
    "processes": "processes",
}
SPREAD_PROCESSES = 10
PR_SET_PDEATHSIG = 1


class Jobs:
    """Two jobs with so many tasks in all; a context manager that leaves nothing behind."""

    def __init__(self, kind, count):
        self.kind = kind
        self.count = count
        self.roots = roots()
        self.made = []
        self.spawners = []

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for spawner in self.spawners:
            spawner.terminate()
        for spawner in self.spawners:
            spawner.wait()
        for directory in reversed(self.made):
            remove(directory)

    @property
    def root(self):
        """The directory in which the jobs' directories lie, as an agent is told it."""
        return self.roots[0]

    def _make(self):
        for root in self.roots:
            for directory in (root, *(os.path.join(root, _name(job)) for job in JOBS)):
                if os.path.exists(directory):
                    raise RuntimeError(
                        f"{directory} is there: another bench runs, or one was killed; "
                        f"then remove it with rmdir"
                    )
                self.made.append(directory)
                add(directory)
        first = self.count - self.count // 2
        for job, count in zip(JOBS, (first, self.count - first)):
            directories = [os.path.join(root, _name(job)) for root in self.roots]
            command = [sys.executable, "-S", "-E", __file__, self.kind, str(count), *directories]
            spawner = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
            self.spawners.append(spawner)
            if not spawner.stdout.readline():
                raise RuntimeError(f"the tasks of job {job} were not made")
        self._check()

    def _check(self):
        """The kernel has to count what was asked for."""
        found = 0
        for job in JOBS:
            directory = os.path.join(self.root, _name(job))
            for name in ("tasks", "cgroup.threads"):
                path = os.path.join(directory, name)
                if os.path.exists(path):
                    with open(path, encoding="ascii") as tasks:
                        found += len(tasks.readlines())
                    break
        if found != self.count:
            raise RuntimeError(f"{found} tasks are in the jobs instead of {self.count}")


def roots():
    """The bench's own directory in each hierarchy; cpuset's first, where OAR's jobs are."""
    roots = []
    for controller in CONTROLLERS:
        mount = os.path.join(CGROUPS, controller)
        if os.path.exists(os.path.join(mount, "tasks")):
            roots.append(os.path.join(mount, ROOT))
    # With version 1, the unified hierarchy has a job's pressure. Without version 1, it is the only hierarchy.
    for mount in (CGROUPS, os.path.join(CGROUPS, "unified")):
        if os.path.exists(os.path.join(mount, "cgroup.procs")) and not os.path.exists(
            os.path.join(mount, "tasks")
        ):
            roots.append(os.path.join(mount, ROOT))
    if not roots:
        raise RuntimeError(f"no cgroups are mounted below {CGROUPS}")
    return roots


def _name(job):
    return f"bench_{job}"


def add(directory):
    """Makes a cgroup in which tasks may run."""
    os.mkdir(directory)
    for name in ("cpuset.cpus", "cpuset.mems"):
        path = os.path.join(directory, name)
        if "/cpuset/" in directory and os.path.exists(path):
            with open(os.path.join(directory, "..", name), encoding="ascii") as parent:
                value = parent.read()
            with open(path, "w", encoding="ascii") as file:
                file.write(value)


def remove(directory):
    """Removes a cgroup; its last tasks may take a while to leave."""
    for _ in range(200):
        try:
            os.rmdir(directory)
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
    print(f"{directory} could not be removed", file=sys.stderr)


def _threads(count):
    """So many threads that wait and are never woken."""
    threading.stack_size(64 << 10)
    never = threading.Event()
    for _ in range(count):
        threading.Thread(target=never.wait, daemon=True).start()


def _processes(counts):
    """Processes of so many threads each that sleep; the kernel ends them with this one."""
    libc = ctypes.CDLL(None)
    children = []
    for count in counts:
        pid = os.fork()
        if pid == 0:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _threads(count - 1)
            while True:
                signal.pause()
        children.append(pid)
    return children


def _wait_for(count, directory):
    """Until the children have made their threads too."""
    for name in ("tasks", "cgroup.threads"):
        path = os.path.join(directory, name)
        while os.path.exists(path):
            with open(path, encoding="ascii") as tasks:
                if len(tasks.readlines()) >= count:
                    return
            time.sleep(0.01)


def _spawn(kind, count, directories):
    children = []

    def end(*_):
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for directory in directories:
        with open(os.path.join(directory, "cgroup.procs"), "w", encoding="ascii") as procs:
            procs.write(str(os.getpid()))
    # Number of tasks in each process; the first process is this one.
    counts = {
        "threads": [count],
        "spread": [len(range(one, count, SPREAD_PROCESSES)) for one in range(min(SPREAD_PROCESSES, count))],
        "processes": [1] * count,
    }[kind]
    children = _processes(counts[1:])
    _threads(counts[0] - 1)
    _wait_for(count, directories[0])
    print("ready", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    _spawn(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
