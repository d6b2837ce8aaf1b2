"""A Modbus service on the port of its argument, or on a free one, which it prints. Registers 0 to 99 of unit 1 hold known numbers."""

import asyncio
import struct
import sys

from pymodbus.datastore import ModbusDeviceContext, ModbusSequentialDataBlock, ModbusServerContext
from pymodbus.server import ModbusTcpServer


def registers(form, value):
    packed = struct.pack(">" + form, value)
    return list(struct.unpack(f">{len(packed) // 2}H", packed))


HOLDING = (
    [245]
    + registers("h", -2)
    + registers("I", 65538)
    + registers("I", 65538)[::-1]
    + registers("f", 42.5)
    + registers("d", -0.125)
    + registers("q", -16)
)


async def main():
    # The block's address 1 is register 0.
    holding = ModbusSequentialDataBlock(1, HOLDING + [0] * (100 - len(HOLDING)))
    inputs = ModbusSequentialDataBlock(1, [1000 + n for n in range(100)])
    context = ModbusServerContext(devices=ModbusDeviceContext(hr=holding, ir=inputs), single=True)
    server = ModbusTcpServer(context, address=("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    serving = asyncio.create_task(server.serve_forever())
    while server.transport is None:
        await asyncio.sleep(0.01)
    print(server.transport.sockets[0].getsockname()[1], flush=True)
    await serving


asyncio.run(main())
