"""What an agent costs: processor time of a tick and memory, at several numbers of sleeping tasks.

Run by agent.sh, which says what is needed and which variables there are. Every program is started,
left to warm up, measured and ended in turn, and that several times over.

Processor time is the clock of the process (`clock_getcpuclockid`): what the scheduler counted, in
nanoseconds, of all its threads and of those that ended, user and system. It is divided by the ticks
whose data came to the program's sink in that time. All programs tick at whole seconds; a
measurement begins and ends half-way between.
"""

import os
import platform
import re
import signal
import statistics
import sys
import time
from dataclasses import dataclass

from agent_jobs import Jobs
from agent_programs import PROGRAMS


@dataclass
class Settings:
    """What the environment asks for."""

    seconds: int
    warmup: int
    rounds: int
    tasks: list
    kinds: list
    programs: list

    @classmethod
    def read(cls):
        """From the environment, or the defaults."""
        names = [program.name for program in PROGRAMS]
        kinds = ["threads", "processes"]
        wanted = _words("PROGRAMS", names)
        return cls(
            seconds=int(os.environ.get("SECONDS") or 12),
            warmup=int(os.environ.get("WARMUP") or 4),
            rounds=int(os.environ.get("ROUNDS") or 3),
            tasks=[int(count) for count in os.environ.get("TASKS", "5,505,5000").split(",")],
            kinds=_words("KINDS", kinds),
            programs=[program for program in PROGRAMS if program.name in wanted],
        )


@dataclass
class Measured:
    """One program in one round."""

    ms_per_tick: float
    ticks: int
    seconds: int
    memory: dict


def measure(program_class, jobs, settings):
    """A measurement, or a sentence that says why there is none."""
    with program_class(jobs) as program:
        time.sleep(settings.warmup)
        _until_half_way()
        if program.death():
            return program.death()
        seconds = max(settings.seconds, program.seconds_min)
        ticks, cpu = program.sink.ticks(), cpu_ns(program.process.pid)
        time.sleep(seconds)
        if program.death():
            return program.death()
        cpu = cpu_ns(program.process.pid) - cpu
        ticks = program.sink.ticks() - ticks
        if fault := program.fault():
            return fault
        if ticks == 0:
            return f"nothing came in {seconds} s"
        return Measured(cpu / ticks / 1e6, ticks, seconds, memory(program.process.pid))


def cpu_ns(pid):
    """The process's processor time. The clock's number is what `clock_getcpuclockid` gives."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def memory(pid):
    """Resident memory in MiB, its parts, its peak, and the share that is not others' too."""
    found = {}
    for path in (f"/proc/{pid}/status", f"/proc/{pid}/smaps_rollup"):
        with open(path, encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name in ("VmRSS", "RssAnon", "RssFile", "VmHWM", "Pss"):
                    found[name] = int(value.split()[0]) / 1024
    return found


def machine():
    """The machine, in words."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = re.search(r"^model name\s*: (.*)$", file.read(), re.M)
    model = model.group(1) if model else platform.machine()
    return f"{os.cpu_count()} processors ({model}), {platform.system()} {platform.release()}"


def node_state():
    """Load, and tasks that were ever made."""
    with open("/proc/stat", encoding="ascii") as file:
        made = int(re.search(r"^processes (\d+)$", file.read(), re.M).group(1))
    return os.getloadavg(), made, time.monotonic()


def _words(name, known):
    words = os.environ.get(name) or ",".join(known)
    words = words.replace(",", " ").split()
    for word in words:
        if word not in known:
            sys.exit(f"{name}: there is no `{word}`; there are {', '.join(known)}")
    return words


def _until_half_way():
    """To the middle between two whole seconds."""
    time.sleep((1.5 - time.time() % 1) % 1)


def measure_all(settings):
    """Everything asked for: by (kind, tasks, program), one result a round."""
    results = {}
    for kind in settings.kinds:
        for count in settings.tasks:
            with Jobs(kind, count) as jobs:
                for round_number in range(settings.rounds):
                    for program in settings.programs:
                        result = measure(program, jobs, settings)
                        results.setdefault((kind, count, program), []).append(result)
                        says = result if isinstance(result, str) else f"{result.ms_per_tick:.3f} ms"
                        where = f"{count} {kind}, round {round_number + 1}"
                        print(f"{where}: {program.name}: {says}", file=sys.stderr, flush=True)
    return results


def spread(values, digits):
    """A median with the least and the largest."""
    middle = f"{statistics.median(values):.{digits}f}"
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return middle if low == high else f"{middle} ({low}–{high})"


def table(results, settings, kind):
    """A Markdown table of one kind of tasks."""
    lines = [
        "| tasks | program | CPU of a tick, ms | RSS, MiB | anonymous | Pss | peak |",
        "|---|---|---|---|---|---|---|",
    ]
    for count in settings.tasks:
        for program in settings.programs:
            lines.append(f"| {count} | {program.what} | {cells(results[kind, count, program])} |")
    return "\n".join(lines)


def cells(rounds):
    """What stands in a line beside the program."""
    good = [result for result in rounds if isinstance(result, Measured)]
    bad = [result for result in rounds if isinstance(result, str)]
    counted = [f"{bad.count(word)} of {len(rounds)} rounds: {word}" for word in sorted(set(bad))]
    words = "; ".join(counted).replace("|", "/")
    if not good:
        return f"{words} | | | | "
    cpu = spread([result.ms_per_tick for result in good], 2)
    # One tick more or less is what a busy machine shifts over the edge of a measurement.
    late = [result for result in good if abs(result.ticks - result.seconds) > 1]
    if late:
        cpu += f", {late[0].ticks} ticks in {late[0].seconds} s"
    if words:
        cpu += f"; {words}"
    names = ("VmRSS", "RssAnon", "Pss", "VmHWM")
    parts = [spread([result.memory[name] for result in good], 1) for name in names]
    return " | ".join([cpu, *parts])


def middle(results, kind, count, name, value):
    """The median of a program's rounds, or None if it has none."""
    for (its_kind, its_count, program), rounds in results.items():
        if (its_kind, its_count, program.name) == (kind, count, name):
            good = [value(result) for result in rounds if isinstance(result, Measured)]
            return statistics.median(good) if good else None
    return None


def goals(results, settings):
    """What was aimed at, and what came of it."""
    lines = []

    def add(goal, value, unit, is_met):
        if value is not None:
            lines.append(f"| {goal} | {value:.2f}{unit} | {'met' if is_met(value) else 'missed'} |")

    def cpu(kind, count, name):
        return middle(results, kind, count, name, lambda result: result.ms_per_tick)

    for kind, factor in (("threads", 20), ("processes", 4)):
        ours, theirs = cpu(kind, 505, "agent-all"), cpu(kind, 505, "colmet")
        ratio = theirs / ours if ours and theirs else None
        goal = f"505 {kind}, all at every tick: colmet-node takes ≥ {factor} times as much"
        add(goal, ratio, " times", lambda ratio, factor=factor: ratio >= factor)
    for kind in settings.kinds:
        for count in settings.tasks:
            goal = f"{count} {kind}, no taskstats polling, no /proc/PID: ≤ 0.5 ms"
            add(goal, cpu(kind, count, "agent-light"), " ms", lambda ms: ms <= 0.5)
    for kind in settings.kinds:
        for count, most in ((505, 8), (5000, 16)):
            for program in ("agent-default", "agent-all"):
                rss = middle(results, kind, count, program, lambda result: result.memory["VmRSS"])
                goal = f"{count} {kind}, {program}: RSS ≤ {most} MB"
                # Megabytes in the goal, so in the answer.
                rss = rss * 1.048576 if rss is not None else None
                add(goal, rss, " MB", lambda rss, most=most: rss <= most)
    head = ["| goal | measured | |", "|---|---|---|"] if lines else []
    return "\n".join(head + lines)


def main():
    """Measures and prints."""
    settings = Settings.read()
    # So that being ended also ends the programs and removes the jobs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    before, made, since = node_state()
    results = measure_all(settings)
    after, made_after, until = node_state()
    forks = (made_after - made) / (until - since)
    print(
        f"{machine()}; load {before[0]:.1f} before and {after[0]:.1f} after, {forks:.0f} tasks "
        f"made on the node each second. Two jobs of tasks that sleep; every program ticks each "
        f"second. Median of {settings.rounds} rounds of {settings.seconds} s (agent with defaults: "
        f"{max(settings.seconds, 30)} s), least and largest in brackets."
    )
    for kind in settings.kinds:
        of = "threads of one process a job" if kind == "threads" else "processes"
        print(f"\nThe tasks are {of}:\n\n{table(results, settings, kind)}")
    print(f"\n{goals(results, settings)}")


if __name__ == "__main__":
    main()
