"""Generates lines of wattmeters, and reads them as kwollector-wattmetre 1.3.1 does.

usage: wattmeter.py SEED COUNT DIR

Writes COUNT files to DIR: even ones of version 2, odd ones of version 3. Prints one JSON list per file: of each line the
instant and the values by port, or null if the line is not used. Its database is not imported.
"""

import json
import logging
import os
import random
import sys
import types

sys.modules["psycopg2"] = types.ModuleType("psycopg2")
config = {"wattmetre_id": "w", "wattmetre_version": 2, "mapping_file_path": "", "log_level": "critical"}
sys.modules["pyonf"] = types.SimpleNamespace(pyonf=lambda _: config)

from kwollect import kwollector_wattmetre  # noqa: E402

ODD = ["", "nan", "NaN", "inf", "-1.5", "-0.0", "1e3", "1_0", " 7 ", "x", "12 W", "0x1", "+4", ".5", "5.", "1__0", "OK"]
LINES = 25


def number(random, odd):
    if random.random() < odd:
        return random.choice(ODD)
    return random.choice(["%.1f", "%.6f", "%g", "%d"]) % (random.random() * 1000)


def time(random):
    if random.random() < 0.1:
        return random.choice(["", "x", "-5", "1e300", "1600000000"])
    return random.choice(["%d.%09d", "%d.%06d"]) % (1600000000 + random.randrange(10**7), random.randrange(10**6))


def line(random, version):
    ports = random.choice([0, 1, 2, 6, 42])
    odd = random.choice([0, 0, 0.1, 0.5])
    values = [number(random, odd) for _ in range(ports)]
    state = {2: "OK", 3: "true"}[version] if random.random() < 0.8 else random.choice(["OK", "true", "ERR", "false", ""])
    if version == 2:
        fields = [str(random.random()), "x", time(random), state] + values
    else:
        pairs = [field for value in values for field in (value, "0.1")]
        fields = [time(random), state, "a", "b", "c", "d"] + pairs + ["1", "2", "3", "4", "5"]
    if random.random() < 0.1:
        fields = fields[: random.randrange(len(fields) + 1)]
    return ",".join(fields) + random.choice(["", "", "", "\r", " ", ","])


def main():
    logging.disable(logging.CRITICAL)
    seed, count, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    read = [kwollector_wattmetre.read_entry_from_wattmetre_v2, kwollector_wattmetre.read_entry_from_wattmetre_v3]
    for file_number in range(count):
        chance = random.Random(f"{seed} {file_number}")
        version = 2 + file_number % 2
        lines = [line(chance, version) for _ in range(LINES)]
        with open(os.path.join(folder, str(file_number)), "w", encoding="utf-8", newline="") as file:
            file.write("".join(text + "\n" for text in lines))
        entries = [read[version - 2](text + "\n") for text in lines]
        print(json.dumps([
            entry and [repr(entry.timestamp), {str(port): repr(value) for port, value in entry.measures.items()}]
            for entry in entries
        ]))


main()
