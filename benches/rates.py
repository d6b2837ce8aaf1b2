#!/usr/bin/env python3
"""How late readings begin when a source is read a thousand times a second, and what that costs.

The agent reads `uptime`, the cheapest source, every millisecond, as an ordinary process and under
SCHED_FIFO (`chrt -f 50`), with the machine left alone and with a process on each processor that never
sleeps; and all its sources once a second, alone and beside it. A table goes to standard output; that
in docs/performance.md was printed by this. Needs a release build of the agent (`make programs`) or
JOBMETER_AGENT_PROGRAM naming another, libzstd.so.1, chrt (util-linux), and root for SCHED_FIFO.

How late a reading began is told by the agent: of readings that begin more than a tenth of the period
late by the instants of their samples, which are the true ones then; of the last reading before each 20
ms by its own metric. So the median is of the latter, and the other figures are of all readings. One
that comes later than a period takes the place of the next: those before it are missed.

  SECONDS=20   seconds of a measurement
"""

import os
import statistics
import subprocess
import sys
import time

from agent import cpu_ns, machine, node_state
from agent_programs import Program
from agent_sinks import Batches

SECONDS = int(os.environ.get("SECONDS") or 20)
FAST = ["--sources-uptime-period", "1ms"]
# Only the measured sources; the others have a period of 1 s.
OWN = ["--sources-agent-period", "20ms", "--source-percent-max", "100"]
FIFO = ["chrt", "-f", "50"]
# Read once a second, unlike the other sources.
OTHERS = [f'"{name}"' for name in ("cpu", "memory", "load", "disk", "network", "vmstat", "pressure")]


class Instants(Batches):
    """Keeps the instants of `uptime` and what the agent says of how late it is."""

    def __init__(self):
        super().__init__(1)
        self.instants = []
        self.late = []
        self.others_late = []
        self.missed = []

    def note(self, name, at_us, value):
        """One sample."""
        metric, labels = name
        if metric == "uptime_seconds":
            self.instants.append(at_us)
        elif metric == "agent_source_missed_ticks_total" and '"uptime"' in labels:
            self.missed.append((at_us, value))
        elif metric == "agent_source_lateness_seconds":
            if '"uptime"' in labels:
                self.late.append(value * 1e6)
            elif at_us % 1_000_000 < 20_000 and any(name in labels for name in OTHERS):
                self.others_late.append(value * 1e6)


class Fast(Program):
    """The agent, wrapped by a command or none, with options of its own."""

    def __init__(self, wrapped, options):
        self.wrapped, self.options = wrapped, options
        super().__init__(None, 1)

    def start(self):
        """Sends to a sink that keeps the instants."""
        self.sink = Instants()
        program = os.path.abspath(
            os.environ.get("JOBMETER_AGENT_PROGRAM") or "target/release/jobmeter-agent"
        )
        spool = os.path.join(self.folder, "spool")
        self.run(
            [
                *(*self.wrapped, program, "--server", self.sink.url, "--spool", spool),
                *("--period", "1s", *self.options),
            ]
        )

    def fault(self):
        """It came at all."""
        return "" if self.sink.instants else "nothing came"


def measure(wrapped, options, spinners):
    """One line of the table."""
    spinning = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
        for _ in range(os.cpu_count() if spinners else 0)
    ]
    try:
        with Fast(wrapped, options) as program:
            time.sleep(4)
            if program.death():
                return program.death()
            begin_us, cpu, begin = time.time() * 1e6, cpu_ns(program.process.pid), time.monotonic()
            time.sleep(SECONDS)
            cpu, took = cpu_ns(program.process.pid) - cpu, time.monotonic() - begin
            end_us = begin_us + took * 1e6
            # The agent seals its last samples within 1 s.
            time.sleep(2.5)
            if fault := program.fault() or program.death():
                return fault
            return told(program.sink, begin_us, end_us, cpu / took / 1e7)
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def told(sink, begin_us, end_us, percent):
    """The figures of what came between two instants, as cells."""
    instants = [at for at in sink.instants if begin_us <= at < end_us]
    due = round((end_us - begin_us) / 1000)
    others = f"{statistics.median(sink.others_late):.0f} / {max(sink.others_late):.0f}"
    if len(instants) < 100:
        return ["", "", "", "", "", others, f"{percent:.2f}"]
    # For delays below a tenth of the period, a sample's instant is the scheduled one.
    late = sorted(at % 1000 for at in instants)
    pause_us = max(second - first for first, second in zip(instants, instants[1:]))
    missed = [count for at, count in sink.missed if begin_us <= at < end_us]
    lost = missed[-1] - missed[0]
    return [
        f"{statistics.median(sink.late):.0f}",
        at_share(late, 0.99),
        f"{pause_us / 1000:.1f}",
        f"{due - len(instants)} of {due}",
        f"{lost:.0f}",
        others,
        f"{percent:.2f}",
    ]


def at_share(late, share):
    """So late at most were that share of the readings."""
    value = late[min(len(late) - 1, int(len(late) * share))]
    return f"{value}" if value else "≤ 100"


def main():
    """Measures and prints."""
    cases = [
        ("uptime every ms", [], [*FAST, *OWN], False),
        ("the same, SCHED_FIFO", FIFO, [*FAST, *OWN], False),
        ("uptime every ms, a busy process on each processor", [], [*FAST, *OWN], True),
        ("the same, SCHED_FIFO", FIFO, [*FAST, *OWN], True),
        ("all sources every second, none faster", [], OWN, False),
    ]
    before = node_state()
    rows = []
    for what, wrapped, options, spinners in cases:
        if wrapped and os.geteuid() != 0:
            rows.append(f"| {what} | needs root | | | | | | |")
            continue
        cells = measure(wrapped, options, spinners)
        cells = [cells, *[""] * 6] if isinstance(cells, str) else cells
        rows.append(f"| {what} | " + " | ".join(cells) + " |")
        print(rows[-1], file=sys.stderr, flush=True)
    after = node_state()
    forks = (after[1] - before[1]) / (after[2] - before[2])
    print(
        f"{machine()}; load {before[0][0]:.1f} before, {forks:.0f} tasks made on the node each second; "
        f"{SECONDS} s each. The other sources as they come at a period of a second, the agent's own metrics every "
        "20 ms.\n"
    )
    print(
        "| | median, µs late | 99 % | longest pause, ms | not read of those due | counted as missed "
        "| sources of a second: median / most, µs late | % of a core |\n|---|---|---|---|---|---|---|---|"
    )
    print("\n".join(rows))


if __name__ == "__main__":
    main()
