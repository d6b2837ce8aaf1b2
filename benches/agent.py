"""What an agent costs: processor time of a tick and memory, at several numbers of sleeping tasks.

Run by agent.sh, which says what is needed and which variables there are. Every program is started,
left to warm up, measured and ended in turn, and that several times over.

Processor time is the clock of the process (`clock_getcpuclockid`): what the scheduler counted, in
nanoseconds, of all its threads and of those that ended, user and system; and of the processes below
it, with what those that ended took. It is divided by the ticks whose data came to the program's sink
in that time, and by the samples. All programs tick at multiples of the period; a measurement begins
and ends half-way between.
"""

import os
import platform
import re
import signal
import statistics
import sys
import time
from dataclasses import dataclass

from agent_jobs import KINDS, Jobs
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
    periods: list

    @classmethod
    def read(cls):
        """From the environment, or the defaults."""
        names = [program.name for program in PROGRAMS]
        wanted = _words("PROGRAMS", names)
        return cls(
            seconds=int(os.environ.get("SECONDS") or 12),
            warmup=int(os.environ.get("WARMUP") or 4),
            rounds=int(os.environ.get("ROUNDS") or 3),
            tasks=[int(count) for count in os.environ.get("TASKS", "5,505,5000").split(",")],
            kinds=_words("KINDS", list(KINDS), ["threads", "processes"]),
            programs=[program for program in PROGRAMS if program.name in wanted],
            periods=[int(period) for period in os.environ.get("PERIODS", "1").split(",")],
        )


@dataclass
class Measured:
    """One program in one round."""

    cpu_ms: float
    ticks: int
    ticks_due: int
    seconds: float
    series: int
    samples: int
    memory: dict

    @property
    def ms_per_tick(self):
        """Milliseconds of processor time of a tick."""
        return self.cpu_ms / self.ticks

    @property
    def percent(self):
        """Hundredths of one processor."""
        return self.cpu_ms / self.seconds / 10

    @property
    def us_per_sample(self):
        """Microseconds of processor time of a sample."""
        return self.cpu_ms * 1000 / self.samples


def measure(program_class, jobs, period, settings):
    """A measurement, or a sentence that says why there is none."""
    with program_class(jobs, period) as program:
        time.sleep(max(settings.warmup, 2 * period))
        _until_half_way(period)
        if program.death():
            return program.death()
        seconds = max(settings.seconds, program.seconds_min)
        ticks, samples = program.sink.ticks(), program.sink.samples()
        begin, cpu = time.monotonic(), cpu_ns(program.process.pid)
        time.sleep(seconds)
        if program.death():
            return program.death()
        cpu, end = cpu_ns(program.process.pid) - cpu, time.monotonic()
        ticks, series = program.sink.ticks() - ticks, program.sink.series()
        samples = ticks * series if samples is None else program.sink.samples() - samples
        if fault := program.fault():
            return fault
        if ticks == 0 or samples == 0:
            return f"nothing came in {seconds} s"
        return Measured(
            cpu_ms=cpu / 1e6,
            ticks=ticks,
            ticks_due=seconds // period,
            seconds=end - begin,
            series=series,
            samples=samples,
            memory=memory(program.process.pid),
        )


def cpu_ns(pid):
    """Processor time of a process and those below it. The clock's number is what `clock_getcpuclockid`
    gives; of those that ended their parent knows hundredths of a second."""
    total = 0
    for one in family(pid):
        try:
            total += time.clock_gettime_ns((~one << 3) | 2)
            with open(f"/proc/{one}/stat", encoding="ascii", errors="replace") as file:
                ended = file.read().rpartition(")")[2].split()[13:15]
        except OSError:
            # The process ended in the meantime.
            continue
        total += sum(map(int, ended)) * 10**9 // os.sysconf("SC_CLK_TCK")
    return total


def family(pid):
    """A process and all below it."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [pid]
    for one in found:
        found.extend(child for child, parent in parents.items() if parent == one)
    return found


def memory(pid):
    """Resident memory in MiB, its parts, its peak, and the share that is not others' too; of a process
    and those below it."""
    found = {}
    for one in family(pid):
        for path in (f"/proc/{one}/status", f"/proc/{one}/smaps_rollup"):
            try:
                with open(path, encoding="ascii", errors="replace") as file:
                    lines = file.readlines()
            except OSError:
                continue
            for line in lines:
                name, _, value = line.partition(":")
                if name in ("VmRSS", "RssAnon", "RssFile", "VmHWM", "Pss"):
                    found[name] = found.get(name, 0) + int(value.split()[0]) / 1024
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


def _words(name, known, default=None):
    words = os.environ.get(name) or ",".join(default or known)
    words = words.replace(",", " ").split()
    for word in words:
        if word not in known:
            sys.exit(f"{name}: there is no `{word}`; there are {', '.join(known)}")
    return words


def _until_half_way(period):
    """To the middle between two ticks."""
    time.sleep((1.5 * period - time.time() % period) % period)


def measure_all(settings):
    """Everything asked for: by (period, kind, tasks, program), one result a round."""
    results = {}
    for kind in settings.kinds:
        for count in settings.tasks:
            with Jobs(kind, count) as jobs:
                for round_number in range(settings.rounds):
                    for period in settings.periods:
                        for program in settings.programs:
                            result = measure(program, jobs, period, settings)
                            results.setdefault((period, kind, count, program), []).append(result)
                            where = f"{period} s, {count} {kind}, round {round_number + 1}"
                            print(f"{where}: {program.name}: {says(result)}", file=sys.stderr, flush=True)
    return results


def says(result):
    """A result in a line."""
    if isinstance(result, str):
        return result
    return f"{result.ms_per_tick:.3f} ms, {result.percent:.3f} %, {result.memory['VmRSS']:.1f} MiB"


def spread(values, digits):
    """A median with the least and the largest."""
    middle = f"{statistics.median(values):.{digits}f}"
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return middle if low == high else f"{middle} ({low}–{high})"


def table(results, settings, period, kind):
    """A Markdown table of one kind of tasks."""
    lines = [
        "| tasks | program | CPU of a tick, ms | % of a core | series | CPU of a sample, µs "
        "| RSS, MiB | anonymous | Pss | peak |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for count in settings.tasks:
        for program in settings.programs:
            measured = cells(results[period, kind, count, program])
            lines.append(f"| {count} | {program.what.format(period=period)} | {measured} |")
    return "\n".join(lines)


def cells(rounds):
    """What stands in a line beside the program."""
    good = [result for result in rounds if isinstance(result, Measured)]
    bad = [result for result in rounds if isinstance(result, str)]
    counted = [f"{bad.count(word)} of {len(rounds)} rounds: {word}" for word in sorted(set(bad))]
    words = "; ".join(counted).replace("|", "/")
    if not good:
        return f"{words} | | | | | | | "
    cpu = spread([result.ms_per_tick for result in good], 2)
    # A busy machine may shift one tick over the edge of a measurement.
    late = [result for result in good if abs(result.ticks - result.ticks_due) > 1]
    if late:
        cpu += f", {late[0].ticks} ticks in {late[0].seconds:.0f} s"
    if words:
        cpu += f"; {words}"
    numbers = [
        cpu,
        spread([result.percent for result in good], 3),
        spread([result.series for result in good], 0),
        spread([result.us_per_sample for result in good], 2),
    ]
    names = ("VmRSS", "RssAnon", "Pss", "VmHWM")
    parts = [spread([result.memory[name] for result in good], 1) for name in names]
    return " | ".join([*numbers, *parts])


def middle(results, case, name, value):
    """The median of a program's rounds, or None if it has none."""
    for (*its_case, program), rounds in results.items():
        if (tuple(its_case), program.name) == (case, name):
            good = [value(result) for result in rounds if isinstance(result, Measured)]
            return statistics.median(good) if good else None
    return None


def goals(results, settings):
    """What was aimed at, and what came of it."""
    lines = []

    def add(goal, value, unit, is_met):
        if value is not None:
            verdict = "met" if is_met(value) else "missed"
            lines.append(f"| {goal} | {value:.3g}{unit} | {verdict} |")

    def at_most(goal, case, name, value, most, unit):
        add(f"{goal} ≤ {most}{unit}", middle(results, case, name, value), unit, lambda it: it <= most)

    cases = [(p, k, t) for p in settings.periods for k in settings.kinds for t in settings.tasks]
    for case in cases:
        period, kind, count = case
        where = f"{count} {KINDS[kind]}, every {period} s"
        if (period, count) == (1, 505) and kind in ("threads", "processes"):
            factor = 20 if kind == "threads" else 4
            ours, theirs = (
                middle(results, case, name, lambda it: it.cpu_ms) for name in ("agent-all", "colmet")
            )
            ratio = theirs / ours if ours and theirs else None
            goal = f"{where}, all at every tick: colmet-node takes ≥ {factor} times as much"
            add(goal, ratio, " times", lambda ratio, factor=factor: ratio >= factor)
        if (period, count) == (5, 505):
            most = 0.3 if kind == "processes" else 0.1
            for name in ("agent-default", "agent-all"):
                at_most(f"{where}, {name}:", case, name, lambda it: it.percent, most, " %")
        goal = f"{where}, no taskstats polling, no /proc/PID:"
        at_most(goal, case, "agent-light", lambda it: it.ms_per_tick, 0.5, " ms")
        for name in ("agent-default", "agent-all"):
            # The goal is in megabytes, so the result is too.
            most = 16 if count > 505 else 8
            rss = lambda it: it.memory["VmRSS"] * 1.048576
            at_most(f"{where}, {name}: RSS", case, name, rss, most, " MB")
        lines.extend(beside_peers(results, settings, case, where))
    head = ["| goal | measured | |", "|---|---|---|"] if lines else []
    return "\n".join(head + lines)


def beside_peers(results, settings, case, where):
    """Whether the agent takes less of a series than each of the others."""
    values = {
        "CPU of a sample": lambda it: it.us_per_sample,
        "CPU of a series": lambda it: it.cpu_ms * 1000 / it.ticks / it.series,
        "RSS of a series": lambda it: it.memory["VmRSS"] * 1024 / it.series,
    }
    for what, value in values.items():
        unit = "KiB" if "RSS" in what else "µs"
        for ours in ("agent-default", "agent-all"):
            mine = middle(results, case, ours, value)
            peers = [program.name for program in settings.programs if not program.name.startswith("agent")]
            theirs = {name: middle(results, case, name, value) for name in peers}
            theirs = {name: it for name, it in theirs.items() if it is not None}
            if mine is None or not theirs:
                continue
            more = [name for name, it in theirs.items() if it <= mine]
            told = ", ".join(f"{name} {it:.2f}" for name, it in theirs.items())
            verdict = "missed: " + ", ".join(more) if more else "met"
            goal = f"{where}, {ours}: {what} below each other program's"
            yield f"| {goal} | {mine:.2f} {unit}; {told} | {verdict} |"


def main():
    """Measures and prints."""
    settings = Settings.read()
    # SIGTERM exits through `sys.exit`, so that the clean-up ends the programs and removes the jobs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    before, made, since = node_state()
    results = measure_all(settings)
    after, made_after, until = node_state()
    forks = (made_after - made) / (until - since)
    print(
        f"{machine()}; load {before[0]:.1f} before and {after[0]:.1f} after, {forks:.0f} tasks "
        f"made on the node each second. Two jobs of tasks that sleep. "
        f"Median of {settings.rounds} rounds of {settings.seconds} s (agent with defaults: "
        f"{max(settings.seconds, 30)} s), least and largest in brackets."
    )
    for period in settings.periods:
        for kind in settings.kinds:
            print(f"\nEvery {period} s; the tasks are {KINDS[kind]}:")
            print(f"\n{table(results, settings, period, kind)}")
    print(f"\n{goals(results, settings)}")


if __name__ == "__main__":
    main()
