"""Measures `jobmeter feed wattmetre`: rows per second from standard input to the server's acknowledgement.

usage: feed.py [SECONDS] [ROUNDS]

Starts the release server (that of PROFILE=debug) with an empty store, and an ordinary feed. The input is SECONDS (600) of
a meter with 42 ports at 50 Hz, every sample. All rows must be stored. Prints each round and the median.
"""

import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BUILT = pathlib.Path(__file__).resolve().parent.parent / "target" / os.environ.get("PROFILE", "release")
PORTS, RATE = 42, 50


def lines(seconds):
    """Recorded watts have one decimal and change little from sample to sample."""
    chance = random.Random(1)
    watts = [chance.uniform(50, 400) for _ in range(PORTS)]
    begin = int(time.time()) - seconds - 60
    text = []
    for number in range(seconds * RATE):
        watts = [max(0.0, value + chance.gauss(0, 2)) for value in watts]
        second, micros = divmod(number * 1_000_000 // RATE, 1_000_000)
        ports = ",".join(f"{value:.1f}" for value in watts)
        text.append(f"0,0,{begin + second}.{micros:06}000,OK,{ports}\n")
    return "".join(text).encode()


def measure(text, folder):
    env = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder)}
    server = subprocess.Popen(
        [BUILT / "jobmeter-server", "--data", folder / "store", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE, env=env, text=True,
    )
    try:
        url = server.stdout.readline().split()[-1]
        command = [BUILT / "jobmeter", "feed", "wattmetre", "--every-sample", "--server", url]
        env["JOBMETER_SPOOL"] = str(folder / "spool")
        begun = time.monotonic()
        feed = subprocess.Popen(command, stdin=subprocess.PIPE, env=env)
        feed.stdin.write(text)
        feed.stdin.close()
        _, status, used = os.wait4(feed.pid, 0)
        took = time.monotonic() - begun
        assert status == 0, status
        query = [BUILT / "jobmeter", "sql", "--csv", "--server", url,
                 "SELECT count(*) AS rows FROM metrics WHERE metric_id = 'wattmetre_power_watt'"]
        stored = int(subprocess.run(query, check=True, env=env, capture_output=True, text=True).stdout.split()[-1])
        return stored, took, used.ru_utime + used.ru_stime, used.ru_maxrss
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def main():
    seconds, rounds = (int(word) for word in (sys.argv[1:] + ["600", "5"][len(sys.argv) - 1:]))
    text = lines(seconds)
    expected, rates = seconds * RATE * PORTS, []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            stored, took, used, rss = measure(text, pathlib.Path(folder))
        assert stored == expected, f"{stored} of {expected} rows are stored"
        rates.append(stored / took)
        print(f"{stored} rows in {took:.2f} s: {stored / took:.0f} rows/s; feed {used:.2f} s CPU, RSS {rss / 1024:.0f} MiB")
    print(f"median {statistics.median(rates):.0f} rows/s")


main()
