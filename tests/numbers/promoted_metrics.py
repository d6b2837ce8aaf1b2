"""Reads promoted_metrics as kwollector 1.3.1 and its reader of wattmeters do, by kwollector's own code.

usage: promoted_metrics.py HOST NAME...

Prints twice a second which optional metrics NAME of the device n1 kwollector would poll, and `wattmetre` if the reader of
wattmeters would store every sample of n1. The clients of devices are not imported.
"""

import asyncio
import sys
import types

import asyncpg

for name in ("aiosnmp", "aiohttp"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["pyonf"] = types.SimpleNamespace(pyonf=lambda _: {})

from kwollect import kwollector  # noqa: E402

WATTMETRE = "SELECT device_id FROM promoted_metrics WHERE 'wattmetre_power_watt' ~ metric_id"


async def main(host, names):
    asyncio.current_task().task_name = "test"
    pool = await asyncpg.create_pool(host=host, user="postgres", database="postgres")
    kwollector.psql_pool = pool
    metrics = [
        types.SimpleNamespace(name=name, device_id="n1", optional=True, labels={}) for name in names
    ]
    while True:
        polled = [metric.name for metric in await kwollector.filter_optional_metrics(metrics)]
        if any(row["device_id"] == "n1" for row in await pool.fetch(WATTMETRE)):
            polled.append("wattmetre")
        print(" ".join(polled), flush=True)
        await asyncio.sleep(0.5)


asyncio.run(main(sys.argv[1], sys.argv[2:]))
