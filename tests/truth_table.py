"""A load that knows what it used: joins cgroups, burns processor time, touches memory, writes, and reports.

load.py OUT CPU_SECONDS CHILDREN MEMORY_MIB WRITE_MIB [CGROUP_DIR...]

The report in OUT, JSON: processor time of the load and its children since it joined the cgroups, and its largest
resident set, both by wait4(2); bytes written and synced. The waiting process stays outside the cgroups.
"""

import json
import os
import resource
import sys


def used():
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(one.ru_utime + one.ru_stime for one in map(resource.getrusage, who))


def burn(seconds):
    import time

    while time.process_time() < seconds:
        sum(range(10000))


out, seconds, children, memory, write = sys.argv[1], *map(float, sys.argv[2:6])


def load(base):
    for cgroup in sys.argv[6:]:
        with open(cgroup + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    os.write(base, b"%f" % used())
    pids = []
    for _ in range(int(children)):
        pid = os.fork()
        if pid == 0:
            burn(seconds)
            os._exit(0)
        pids.append(pid)
    touched = bytearray(int(memory) << 20)
    touched[::4096] = bytes([1]) * len(touched[::4096])
    if write:
        with open(out + ".data", "wb") as file:
            file.write(bytes(int(write) << 20))
            file.flush()
            os.fsync(file.fileno())
    for pid in pids:
        os.waitpid(pid, 0)
    if not children:
        burn(seconds)
    os._exit(0)


read, base = os.pipe()
pid = os.fork()
if pid == 0:
    load(base)
_, status, usage = os.wait4(pid, 0)
cpu = usage.ru_utime + usage.ru_stime - float(os.read(read, 100))
if not sys.argv[6:]:
    # This process is in the job, too.
    cpu = used()
with open(out, "w") as file:
    json.dump({"cpu": cpu, "peak": usage.ru_maxrss * 1024, "written": int(write) << 20}, file)
sys.exit(status != 0)
