#!/usr/bin/env python3
"""Measures `jobmeter run`: the error of its wall time, and how long after its last process it returns.

The command is a small program that writes the clock at its start and at its end, so that each run has its own truth.
It runs without a server and beside `jobmeter up`, as root with a cgroup and as an ordinary user without one.
Usage: run_wall.py [FOLDER OF THE PROGRAMS, default target/release]. Bounds: 1 ms of error, 20 ms to return.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

RUNS = int(os.environ.get("RUNS", "50"))
TRUTH = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); return t.tv_sec + t.tv_nsec / 1e9; }
int main(int count, char **words) {
    double start = now();
    usleep(atoi(words[2]) * 1000);
    /* What it leaves behind for 20 ms is part of the job. */
    if (atoi(words[3]) && fork()) _exit(0);
    if (atoi(words[3])) usleep(20000);
    FILE *file = fopen(words[1], "w");
    double end = now();
    fprintf(file, "%.6f %.6f\n", start, end);
    fclose(file);
    _exit(0);
}
"""


def measure(jobmeter, truth, user, server, background, folder):
    """Errors of the wall time and times to return, in milliseconds."""
    errors, returns = [], []
    for _ in range(RUNS):
        out = folder / "times"
        out.write_text("")
        out.chmod(0o666)
        words = [jobmeter, "run", "--json", "--server", server, "--", truth, out, "120", str(int(background))]
        if user:
            words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *words]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        returned = time.time()
        start, end = map(float, out.read_text().split())
        errors.append(abs(json.loads(done.stdout)["wall_seconds"] - (end - start)) * 1000)
        returns.append((returned - end) * 1000)
    return errors, returns


def main():
    programs = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "target/release").resolve()
    jobmeter = programs / "jobmeter"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        (folder / "truth.c").write_text(TRUTH)
        truth = folder / "truth"
        subprocess.run(["cc", "-O2", "-static", "-o", truth, folder / "truth.c"], check=True)
        up = subprocess.Popen(
            [jobmeter, "up", "--data", folder / "data", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
        )
        url = next(line for line in up.stdout if line.startswith("ready: ")).split()[1]
        print(f"jobmeter run, {RUNS} runs of 120 ms each; milliseconds: median, largest")
        print(f"{'':40}{'error of wall time':>22}{'returned after':>20}")
        try:
            for user in [False, True] if os.geteuid() == 0 else [None]:
                for server, where in [("http://127.0.0.1:1", "no server"), (url, "server and agent")]:
                    for background in [False, True]:
                        who = "ordinary user" if user or user is None else "root, cgroup"
                        what = f"{who}, {where}" + (", background" if background else "")
                        errors, returns = measure(jobmeter, truth, user, server, background, folder)
                        figures = [f"{statistics.median(of):10.2f}{max(of):10.2f}" for of in (errors, returns)]
                        print(f"{what:42}{figures[0]}{figures[1]}", flush=True)
        finally:
            up.terminate()
            up.wait()


if __name__ == "__main__":
    main()
