"""A load that knows what it used: joins cgroups, burns processor time, touches memory, writes, sends, and reports.

truth_table.py OUT LOAD [CGROUP_DIR...]

LOAD, JSON; what is left out is 0:
  before_cpu, before_write   seconds and MiB before it joins the cgroups
  cpu, children              seconds of processor time of each of so many children, or of the load if there are none
  memory, write              MiB
  tasks, task_write          so many children after each other that write so many KiB each
  send                       KiB to 192.0.2.2 by UDP, once a line comes on standard input; it ends with the next one

The report in OUT, JSON: processor time of the load and its children since it joined the cgroups, and its largest
resident set, both by wait4(2); bytes written since it joined. The waiting process stays outside the cgroups.
"""

import json
import os
import resource
import sys
import time


def used():
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(one.ru_utime + one.ru_stime for one in map(resource.getrusage, who))


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(10000))


def write(path, size):
    with open(path, "wb") as file:
        file.write(bytes(size))
        file.flush()
        os.fsync(file.fileno())


def fork(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid


def send(size):
    import socket

    sys.stdin.readline()
    datagram = bytes(1024)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(size):
            sender.sendto(datagram, ("192.0.2.2", 9))
    sys.stdin.readline()


out, load, *cgroups = sys.argv[1:]
load = json.loads(load)


def value(name):
    return load.get(name, 0)


def mib(name):
    return int(value(name) * (1 << 20))


def run(base):
    if value("before_write"):
        write(out + ".before", mib("before_write"))
    burn(value("before_cpu"))
    for cgroup in cgroups:
        with open(cgroup + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    os.write(base, b"%f" % used())
    pids = [fork(lambda: burn(value("cpu"))) for _ in range(value("children"))]
    touched = bytearray(mib("memory"))
    touched[::4096] = bytes([1]) * len(touched[::4096])
    if value("write"):
        write(out + ".data", mib("write"))
    for task in range(value("tasks")):
        os.waitpid(fork(lambda: write(f"{out}.{task}", value("task_write") << 10)), 0)
    for pid in pids:
        os.waitpid(pid, 0)
    if not pids:
        burn(value("cpu"))
    if value("send"):
        send(value("send"))


read, base = os.pipe()
pid = fork(lambda: run(base))
_, status, usage = os.wait4(pid, 0)
cpu = usage.ru_utime + usage.ru_stime - float(os.read(read, 100))
if not cgroups:
    # This process is also part of the job.
    cpu = used()
written = mib("write") + value("tasks") * (value("task_write") << 10)
with open(out, "w") as file:
    json.dump({"cpu": cpu, "peak": usage.ru_maxrss * 1024, "written": written}, file)
sys.exit(status != 0)
