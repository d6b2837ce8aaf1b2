#!/usr/bin/env bash
# Measures the cost of an agent: jobmeter-agent beside colmet-node, prometheus-node-exporter, netdata and
# collectd.
#
# The bench creates jobs of sleeping tasks and removes them afterwards. Standard output receives the tables,
# and standard error everything else. This program printed the figures in docs/performance.md.
#
# Requirements:
# - root, for cgroups and taskstats
# - Linux with cgroups as OAR uses them: version 1 with cpuset, or version 2 alone. With version 2 alone
#   colmet-node finds no jobs, and the output states this.
# - python3 with venv, and libzstd.so.1 (Debian's libzstd1, part of every Debian)
# - network access for the first run
# - about 2 GB of memory for 5000 processes
# - a release build of the agent (`make programs`), or its path in JOBMETER_AGENT_PROGRAM
#
# The peers are below target/bench: colmet-node from PyPI in a virtual environment, and the other programs
# from Debian's packages. The packages are unpacked but not installed, so that no service of theirs is ever
# enabled or started.
#
#     SECONDS=12   seconds of a measurement; the agent's defaults take at least 30, the period of
#                  their slowest source
#     WARMUP=4     seconds before it
#     ROUNDS=3     measurements of each program, in turn
#     TASKS=5,505,5000         tasks in both jobs together
#     KINDS=threads,processes  kinds of tasks; `spread`: threads in 20 processes
#     PERIODS=1                seconds between two ticks of every program; `5,1`: both in turn
#     PROGRAMS=...             only these: agent-default agent-all agent-light colmet node-exporter
#                              netdata collectd
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

# Installs only the packages that colmet's node program imports. The other requirements of colmet belong to
# its collector. `asyncore` is not part of Python since 3.12.
colmet() {
    [ -x "$place/colmet/bin/colmet-node" ] && return
    python3 -m venv "$place/colmet"
    local install=("$place/colmet/bin/pip" install -q --disable-pip-version-check)
    "${install[@]}" pyzmq pyinotify 'pyasyncore; python_version >= "3.12"'
    "${install[@]}" --no-deps "colmet==$colmet_version"
}

# Unpacks the peers' packages with the dependencies that this machine lacks.
debian() {
    local packages=(prometheus-node-exporter netdata-core netdata-plugins-bash collectd-core) all
    [ -e "$place/peers/unpacked" ] && return
    rm -rf "$place/peers" "$place/packages"
    mkdir -p "$place/packages"
    apt-get -o DPkg::Lock::Timeout=300 update -q
    mapfile -t all < <(apt-get install -s --no-install-recommends "${packages[@]}" | awk '/^Inst/ {print $2}')
    # The list above lacks packages that are installed already, so add the peers' packages to it.
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
