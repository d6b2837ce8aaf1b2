"""Generates description files, and reads them as kwollector 1.3.1 does.

usage: kwollector.py SEED COUNT DIR

Writes COUNT files to DIR and one JSON object per file to standard output: the entries that kwollector's own parser
makes of the file, or null if it ends at the file. The clients of kwollector are not imported: its parser needs none.
"""

import json
import logging
import math
import os
import random
import sys
import tempfile
import types

for name in ("asyncpg", "aiosnmp", "aiohttp"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["pyonf"] = types.SimpleNamespace(pyonf=lambda _: {})

from kwollect import kwollector  # noqa: E402

SCALARS = """yes No ON off true FALSE y n null ~ Null 0 1 -7 +3 017 0o17 08 0x1F 0b101 1_000 1:30 1:30:15 190:20:30.15
1.5 1. .5 -.5 1e3 1.5e3 1.5e+3 1.5E-2 .inf -.INF .nan 1.2.3 2026-11-26 2026-1-2 2026-11-26T10:00:00Z 12:00 = abc
eth0 a:b a#b x-y -1- +a .a @a""".split()
QUOTED = ["yes", "it's", 'a "b"', "1", "", " lead", "tab\there", "é", "\u2028", "back\\slash", "#no", "a: b", "- a"]
STRINGS = ["'%s'", '"%s"']


def scalar(random):
    if random.random() < 0.6:
        return random.choice(SCALARS)
    text = random.choice(QUOTED)
    if random.random() < 0.5:
        return "'" + text.replace("'", "''").replace("\t", " ") + "'"
    return json.dumps(text, ensure_ascii=random.random() < 0.5)


def value(random, depth=0):
    draw = random.random()
    if depth > 2 or draw < 0.7:
        return scalar(random)
    if draw < 0.85:
        return "[" + ", ".join(value(random, depth + 1) for _ in range(random.randrange(4))) + "]"
    return labels(random, depth + 1)


def labels(random, depth=0):
    keys = ["id", "fan", "'cpu'", '"psu"', "_device_alias", "interface", "a b", "yes", "1", "~"]
    chosen = random.sample(keys, random.randrange(1, 4))
    # As in JSON, no blank is needed after a quoted key. After other keys PyYAML splits some of these texts.
    tight = random.random() < 0.2
    colons = [":" if tight and key[0] in "'\"" else ": " for key in chosen]
    return "{" + ", ".join(f"{key}{colon}{value(random, depth)}" for key, colon in zip(chosen, colons)) + "}"


def url(random):
    host = random.choice(["pdu-1", "PDU-2.site", "192.168.0.7", "[fe80::1]"])
    port = random.choice(["", ":1161", ":"])
    oid = "1.3.6.1." + ".".join(str(random.randrange(300)) for _ in range(4))
    template = "1.3.6.1.31.{{ 1.3.6.1.2 == Port %d/%d }}" % (random.randrange(9), random.randrange(9))
    return random.choice([
        f"snmp://public@{host}{port}/{oid}",
        f"snmp://p%40ss%3Aw@{host}{port}/{oid}",
        f"snmp://c@{host}/{template}",
        f"ipmisensor://root:c%61lvin@{host}{port}/{random.choice(['12', 'Inlet%20Temp', 'Fan1A'])}",
        f"prometheus://{host}:9100/{random.choice(['', 'node_load1', 'a_total-b_total-c'])}",
    ])


def entry(random, number, anchors):
    lines = [f"name: metric_{number}", f"device_id: device-{random.randrange(9)}", f"url: {url(random)}"]
    if "{{" in lines[2]:
        lines[2] = "url: " + random.choice(["'%s'", '"%s"']) % lines[2][5:]
    if random.random() < 0.5:
        lines.append(f"update_every: {random.choice(['1000', '15_000', '0x1F4', '010000', '1:30', '250'])}")
    if random.random() < 0.4:
        lines.append(f"optional: {random.choice(['true', 'yes', 'off', 'No', 'ON', 'False'])}")
    if random.random() < 0.3:
        lines.append(f"scale_factor: {random.choice(['0.1', '1', '0', '-2', '1.e+3', '.5'])}")
    if random.random() < 0.6:
        lines.append(f"labels: {labels(random)}")
    if anchors and random.random() < 0.3:
        lines = [line for line in lines if not line.startswith(("device_id", "update_every"))]
        merged = random.sample(anchors, min(len(anchors), random.choice([1, 1, 2])))
        lines.append("<<: " + (f"*{merged[0]}" if len(merged) == 1 else "[" + ", ".join(f"*{m}" for m in merged) + "]"))
    random.shuffle(lines)
    return lines


def document(random):
    anchors, parts = [], []
    head = random.choice(["", "---\n", "%YAML 1.1\n---\n", "# a comment\n", "\ufeff"])
    count = random.choice([0, 1, 1, 2, 5])
    for number in range(count):
        lines = entry(random, number, anchors)
        comment = "  # c" if random.random() < 0.2 else ""
        first = ""
        if random.random() < 0.3 and not any(line.startswith("<<") for line in lines):
            anchor = f"a{number}"
            anchors.append(anchor)
            first = f"&{anchor}\n  "
        parts.append("- " + first + ("\n  ").join(line + comment for line in lines) + "\n")
    if count == 1 and random.random() < 0.3:
        body = parts[0][2:].replace("\n  ", "\n")
        if not body.startswith("&"):
            return head + body
    return head + "".join(parts) + random.choice(["", "", "...\n" if parts else "", "\n\n"])


def plain(item):
    """A value as JSON, or a text that marks what JSON lacks."""
    if isinstance(item, float) and not math.isfinite(item):
        return "not JSON"
    if isinstance(item, dict):
        if not all(isinstance(key, str) for key in item):
            return "not JSON"
        return {key: plain(value) for key, value in item.items()}
    if isinstance(item, list):
        return [plain(value) for value in item]
    return item if isinstance(item, (str, int, float, bool, type(None))) else "not JSON"


def read(path):
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(path), os.path.join(folder, "file"))
        try:
            found = kwollector.load_metric_descriptions(folder)
        except (SystemExit, Exception):
            return None
    return [
        {
            "name": one.name,
            "device": one.device_id,
            "scheme": one.device.protocol,
            "host": one.device.hostname,
            "port": one.device.port,
            "user": one.device.username,
            "password": one.device.password,
            "path": one.path if one.path is not None else one.path_template,
            "update_every": one.update_every,
            "optional": one.optional,
            "labels": plain(one.labels),
            "scale_factor": one.scale_factor,
        }
        for one in found
    ]


def main():
    logging.disable(logging.CRITICAL)
    seed, count, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    for number in range(count):
        path = os.path.join(folder, f"{number:05}.conf")
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(document(random.Random(f"{seed} {number}")))
        print(json.dumps(read(path)))


main()
