"""Writes expositions by prometheus_client's encoders, and reads them by its parsers.

usage: exposition.py SEED COUNT DIR

Writes COUNT files to DIR and one JSON list per file to standard output: its samples as [name, labels, value,
timestamp], numbers as texts. The even files are of the text format, the odd ones of OpenMetrics.
"""

import json
import os
import random
import sys

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info, Summary
from prometheus_client import exposition, openmetrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics import exposition as open_exposition
from prometheus_client.openmetrics import parser as open_parser
from prometheus_client.parser import text_string_to_metric_families

NAMES = ["a", "node_load1", "rule:cpu:avg", "_x", "my.metric", "größe", "with space", 'quo"te', "back\\slash"]
LABELS = ["cpu", "mode", "_l", "a.b", "le nom", 'q"']
TEXTS = ["", "0", "user", 'a "b"', "back\\slash", "line\nend", "é😀", " blank ", "{}", "a,b=c", "#", "\t"]
VALUES = [0.0, 1.0, -1.5, 1e16, 1e-9, 123456789.25, float("inf"), float("-inf"), float("nan"), 2.0**63]


class Timed:
    """A gauge with timestamps of its own."""

    def __init__(self, random, name):
        self.random, self.name = random, name

    def collect(self):
        family = GaugeMetricFamily(self.name, "Help of timed.", labels=["n"])
        for number in range(self.random.randrange(1, 4)):
            at = self.random.choice([1395066363.0, 0.5, 1606389005.123, None])
            family.add_metric([str(number)], self.random.choice(VALUES), timestamp=at)
        yield family


def fill(random, registry):
    for number in range(random.randrange(1, 6)):
        name = f"{random.choice(NAMES)}_{number}"
        help = random.choice(TEXTS)
        labels = random.sample(LABELS, random.randrange(3))
        kind = random.randrange(7)
        if kind == 0:
            registry.register(Timed(random, name))
            continue
        make = [Counter, Gauge, Histogram, Summary, Info, Enum][kind - 1]
        more = {"states": ["on", "off"]} if make is Enum else {}
        metric = make(name, help, labels, registry=registry, **more)
        for _ in range(random.randrange(1, 3)):
            child = metric.labels(*[random.choice(TEXTS) for _ in labels]) if labels else metric
            exemplar = {"trace_id": random.choice(TEXTS)} if random.random() < 0.5 else None
            if make is Counter:
                child.inc(abs(random.choice([0.0, 1.0, 2.5])), exemplar=exemplar)
            elif make is Gauge:
                child.set(random.choice(VALUES))
            elif make is Histogram:
                child.observe(random.choice([0.01, 3.0, 99.0]), exemplar=exemplar)
            elif make is Summary:
                child.observe(random.choice([0.01, 3.0]))
            elif make is Info:
                child.info({"version": random.choice(TEXTS)})
            else:
                child.state("off")


def main():
    seed, count, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    for number in range(count):
        draws = random.Random(f"{seed} {number}")
        registry = CollectorRegistry()
        fill(draws, registry)
        if number % 2 == 0:
            text = exposition.generate_latest(registry, escaping="allow-utf-8").decode()
            # Blanks that the format allows and no encoder writes.
            if draws.random() < 0.3:
                text = "\n".join(line if line.startswith("#") else " " + line.replace("} ", "}\t", 1) for line in text.split("\n"))
            families = text_string_to_metric_families(text)
        else:
            text = open_exposition.generate_latest(registry, escaping="allow-utf-8").decode()
            families = open_parser.text_string_to_metric_families(text)
        with open(os.path.join(folder, str(number)), "w", encoding="utf-8", newline="") as file:
            file.write(text)
        samples = [
            [sample.name, sample.labels, repr(float(sample.value)), None if sample.timestamp is None else repr(float(sample.timestamp))]
            for family in families
            for sample in family.samples
        ]
        print(json.dumps(samples))


main()
