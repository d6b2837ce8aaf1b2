#!/usr/bin/env bash
# What an agent costs: jobmeter-agent beside colmet-node and prometheus-node-exporter, on jobs of
# sleeping tasks that this makes and removes. The tables go to standard output, all else to standard
# error. What stands in docs/performance.md was printed by this.
#
# Needs root (cgroups, taskstats) and a Linux with OAR's kind of cgroups: version 1 with cpuset, or
# version 2 alone, where colmet-node finds no jobs, which is then printed. Needs python3 with venv,
# libzstd.so.1 (Debian's libzstd1, there on every Debian), the network for the first run, some
# 2 GB of memory for 5000 processes, and a release build of the agent
# (`make programs`) or JOBMETER_AGENT_PROGRAM naming another.
#
# The peers are put below target/bench: colmet-node from PyPI in a virtual environment, and the
# program out of Debian's package prometheus-node-exporter, which is unpacked and not installed, so
# that no service of it is ever started or enabled. A node exporter that is installed is used as it
# is.
#
#   SECONDS=12   seconds of a measurement; the agent's defaults take 30 at least, the period of
#                their slowest source
#   WARMUP=4     seconds before it
#   ROUNDS=3     each program is measured so often, in turn
#   TASKS=5,505,5000         tasks in both jobs together
#   KINDS=threads,processes  what the tasks are
#   PROGRAMS=...             only these: agent-default agent-all agent-light colmet node-exporter
set -eu
cd "$(dirname "$0")/.."
place=target/bench
exporter=prometheus-node-exporter
colmet_version=0.6.10

if [ "$(id -u)" != 0 ]; then
    echo "the agent's bench makes cgroups and asks for taskstats: run it as root" >&2
    exit 1
fi
agent=${JOBMETER_AGENT_PROGRAM:-target/release/jobmeter-agent}
if [ ! -x "$agent" ]; then
    echo "$agent is missing: make programs" >&2
    exit 1
fi

# Only what its node program imports: the rest of colmet's requirements is its collector's.
# `asyncore` left Python with 3.12.
colmet() {
    [ -x "$place/colmet/bin/colmet-node" ] && return
    python3 -m venv "$place/colmet"
    local install=("$place/colmet/bin/pip" install -q --disable-pip-version-check)
    "${install[@]}" pyzmq pyinotify 'pyasyncore; python_version >= "3.12"'
    "${install[@]}" --no-deps "colmet==$colmet_version"
}

node_exporter() {
    command -v "$exporter" && return
    if [ ! -x "$place/exporter/usr/bin/$exporter" ]; then
        apt-get -o DPkg::Lock::Timeout=300 update -q >&2
        (cd "$place" && apt-get download -q "$exporter" >&2)
        dpkg-deb -x "$place/${exporter}"_*.deb "$place/exporter"
    fi
    echo "$place/exporter/usr/bin/$exporter"
}

mkdir -p "$place"
colmet >&2
EXPORTER_PROGRAM=$(node_exporter)
export EXPORTER_PROGRAM JOBMETER_AGENT_PROGRAM=$agent COLMET_PYTHON=$place/colmet/bin/python
exec python3 -B benches/agent.py
