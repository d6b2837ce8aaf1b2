#!/usr/bin/env bash
# What an agent costs: jobmeter-agent beside colmet-node, prometheus-node-exporter, netdata and collectd,
# on jobs of sleeping tasks that this makes and removes. The tables go to standard output, all else to standard
# error. What stands in docs/performance.md was printed by this.
#
# Needs root (cgroups, taskstats) and a Linux with OAR's kind of cgroups: version 1 with cpuset, or
# version 2 alone, where colmet-node finds no jobs, which is then printed. Needs python3 with venv,
# libzstd.so.1 (Debian's libzstd1, there on every Debian), the network for the first run, some
# 2 GB of memory for 5000 processes, and a release build of the agent
# (`make programs`) or JOBMETER_AGENT_PROGRAM naming another.
#
# The peers are put below target/bench: colmet-node from PyPI in a virtual environment, and the
# programs out of Debian's packages, which are unpacked there and not installed, so that no service of
# them is ever started or enabled.
#
#   SECONDS=12   seconds of a measurement; the agent's defaults take 30 at least, the period of
#                their slowest source
#   WARMUP=4     seconds before it
#   ROUNDS=3     each program is measured so often, in turn
#   TASKS=5,505,5000         tasks in both jobs together
#   KINDS=threads,processes  what the tasks are; `spread`: threads in 20 processes
#   PERIODS=1                seconds between two ticks, of every program; `5,1`: both in turn
#   PROGRAMS=...             only these: agent-default agent-all agent-light colmet node-exporter
#                            netdata collectd
set -eu
cd "$(dirname "$0")/.."
place=target/bench
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

# With what they need and this machine lacks.
debian() {
    local packages=(prometheus-node-exporter netdata-core netdata-plugins-bash collectd-core) all
    [ -e "$place/peers/unpacked" ] && return
    rm -rf "$place/peers" "$place/packages"
    mkdir -p "$place/packages"
    apt-get -o DPkg::Lock::Timeout=300 update -q
    mapfile -t all < <(apt-get install -s --no-install-recommends "${packages[@]}" | awk '/^Inst/ {print $2}')
    # One that is installed is not listed.
    mapfile -t all < <(printf '%s\n' "${all[@]}" "${packages[@]}" | sort -u)
    (cd "$place/packages" && apt-get download -q "${all[@]}")
    for package in "$place"/packages/*.deb; do
        dpkg-deb -x "$package" "$place/peers"
    done
    touch "$place/peers/unpacked"
}

mkdir -p "$place"
{
    colmet
    debian
} >&2
export PEERS=$place/peers JOBMETER_AGENT_PROGRAM=$agent COLMET_PYTHON=$place/colmet/bin/python
exec python3 -B benches/agent.py
