"""What FrUCToSA's 20 sensors say: a line of JSON for each line that is read.

Scalars and tuples are objects of numbers, sensors that answer lists are objects of lists; what psutil has no
answer for (no battery, no frequency) is null. The first line tells the fields that each sensor has at all.
"""

import ipaddress
import json
import socket
import sys

import psutil
from psutil import _ntuples as tuples

LISTS = {
    "DiskPartitions": tuples.sdiskpart,
    "NetConnections": tuples.sconn,
    "NetIFAddrs": tuples.snicaddr,
    "NetIFStats": tuples.snicstats,
    "SensorsTemperatures": tuples.shwtemp,
    "SensorsFans": tuples.sfan,
    "Users": tuples.suser,
}


def every(of_keys):
    """All entries of a dictionary of lists."""
    return [entry for entries in of_keys.values() for entry in entries]


def inet(address):
    """An address of IPv4 or IPv6 without its scope; others are of the hardware."""
    return address.family in (socket.AF_INET, socket.AF_INET6)


def short(address):
    """An address without its scope, its netmask by its length."""
    length = bin(int(ipaddress.ip_address(address.netmask))).count("1")
    return address._replace(address=address.address.split("%")[0], netmask=str(length))


def tcp(sockets):
    """Sockets of TCP by their states as the kernel writes them; others have none."""
    states = [entry._replace(status=entry.status.lower()) for entry in sockets]
    return [entry for entry in states if entry.type == socket.SOCK_STREAM]


def plain(value):
    """A value as a number or a text."""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, (int, float, str, type(None))) else str(value)


def lists():
    """Sensors that answer any number of entries."""
    addresses = [entry for entry in every(psutil.net_if_addrs()) if inet(entry)]
    return {
        "DiskPartitions": psutil.disk_partitions(),
        "NetConnections": tcp(psutil.net_connections()),
        "NetIFAddrs": [short(entry) for entry in addresses],
        "NetIFStats": list(psutil.net_if_stats().values()),
        "SensorsTemperatures": every(psutil.sensors_temperatures()),
        "SensorsFans": every(psutil.sensors_fans()),
        "Users": psutil.users(),
    }


def tuples_of_numbers():
    """Sensors that answer one tuple, or nothing."""
    return {
        "VirtualMemory": psutil.virtual_memory(),
        "CPUTimes": psutil.cpu_times(),
        "CPUTimesPercent": psutil.cpu_times_percent(),
        "CPUStats": psutil.cpu_stats(),
        "CPUFreq": psutil.cpu_freq(),
        "SwapMemory": psutil.swap_memory(),
        "DiskUsage": psutil.disk_usage("/"),
        "DiskIOCounters": psutil.disk_io_counters(),
        "NetIOCounters": psutil.net_io_counters(),
        "SensorsBattery": psutil.sensors_battery(),
    }


def sensors():
    """Every sensor."""
    said = {
        "CPUPercent": dict(enumerate(psutil.cpu_percent(percpu=True))),
        "CPUCount": {"value": psutil.cpu_count()},
        "BootTime": {"value": psutil.boot_time()},
    }
    for name, answer in tuples_of_numbers().items():
        said[name] = None if answer is None else {k: plain(v) for k, v in answer._asdict().items()}
    for name, entries in lists().items():
        fields = LISTS[name]._fields
        said[name] = {field: [plain(getattr(entry, field)) for entry in entries] for field in fields}
    return said


def fields():
    """The fields of every sensor, answered now or not."""
    known = {"CPUPercent": ["N"], "CPUCount": ["value"], "BootTime": ["value"]}
    known["CPUFreq"] = list(tuples.scpufreq._fields)
    known["SensorsBattery"] = list(tuples.sbattery._fields)
    for name, answer in tuples_of_numbers().items():
        if answer is not None:
            known[name] = list(answer._fields)
    return known | {name: list(of._fields) for name, of in LISTS.items()}


print(json.dumps(fields()), flush=True)
for _ in sys.stdin:
    print(json.dumps(sensors()), flush=True)
