"""Simulated targets of pollers on loopback, for `polls.py`: exporters, SNMP agents, JSON documents and Modbus servers.

usage: poll_targets.py PLAN

PLAN is a JSON file: for each kind of target its addresses and what they answer. Each kind has a process of its own. Prints
`ready`, then serves until its standard input ends, and prints how often it answered: `{"scrapes": …, "variables": …}`.
"""

import asyncio
import bisect
import json
import os
import resource
import socket
import subprocess
import sys
import time

COUNTS = {"scrapes": 0, "variables": 0}
BEGUN = time.monotonic()
UPTIME = (1, 3, 6, 1, 2, 1, 1, 3, 0)
TIMETICKS, COUNTER64, GET, GET_NEXT, RESPONSE, GET_BULK = 0x43, 0x46, 0xA0, 0xA1, 0xA2, 0xA5
END_OF_VIEW, NO_OBJECT = b"\x82\x00", b"\x80\x00"


def tlv(tag, content):
    length = len(content)
    size = bytes([length]) if length < 128 else bytes([0x82]) + length.to_bytes(2, "big")
    return bytes([tag]) + size + content


def parts(data):
    """The elements of a BER sequence, as (tag, content)."""
    at, found = 0, []
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at:at + size], "big")
            at += size
        found.append((tag, data[at:at + length]))
        at += length
    return found


def oid_bytes(oid):
    out = bytearray([oid[0] * 40 + oid[1]])
    for number in oid[2:]:
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(number & 0x7F | 0x80)
        out += bytes(reversed(groups))
    return bytes(out)


def oid_of(data):
    oid, number = [data[0] // 40, data[0] % 40], 0
    for byte in data[1:]:
        number = number << 7 | byte & 0x7F
        if byte < 128:
            oid.append(number)
            number = 0
    return tuple(oid)


class Snmp(asyncio.DatagramProtocol):
    """An SNMP agent of version 2c with counters below one table. Responses are cached without request ID and uptime."""

    def __init__(self, oids):
        self.oids, self.cache, self.transport = oids, {}, None

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        version, community, (tag, pdu) = parts(parts(data)[0][1])
        (_, request), *rest = parts(pdu)
        key = (tag, pdu[len(request) + 2:])
        if key not in self.cache:
            self.cache[key] = self.bind(tag, rest)
        variables, binds = self.cache[key]
        COUNTS["variables"] += variables
        ticks = int((time.monotonic() - BEGUN) * 100).to_bytes(4, "big")
        binds = binds.replace(b"UPTI", ticks)
        content = tlv(2, request) + tlv(2, b"\0") + tlv(2, b"\0") + tlv(0x30, binds)
        head = tlv(*version) + tlv(*community)
        self.transport.sendto(tlv(0x30, head + tlv(RESPONSE, content)), address)

    def bind(self, tag, rest):
        (_, first), (_, second), (_, binds) = rest
        asked = [oid_of(parts(bind)[0][1]) for _, bind in parts(binds)]
        if tag == GET:
            found = asked
        else:
            once = int.from_bytes(first, "big") if tag == GET_BULK else len(asked)
            found = [self.after(oid) for oid in asked[:once]]
            columns = asked[once:]
            for _ in range(int.from_bytes(second, "big") if columns else 0):
                columns = [self.after(oid) for oid in columns]
                found += columns
        values = [self.value(oid) for oid in found]
        known = sum(value[0] == COUNTER64 for value in values)
        return known, b"".join(tlv(0x30, tlv(6, oid_bytes(oid)) + value) for oid, value in zip(found, values))

    def after(self, oid):
        at = bisect.bisect_right(self.oids, oid)
        return self.oids[at] if at < len(self.oids) else oid

    def value(self, oid):
        if oid == UPTIME:
            return tlv(TIMETICKS, b"UPTI")
        at = self.places.get(oid)
        return NO_OBJECT if at is None else tlv(COUNTER64, (at + 1000).to_bytes(3, "big"))


def exposition(lines):
    """A body as a node's exporter writes it."""
    body = ["# HELP bench_value A value.\n# TYPE bench_value gauge\n"]
    body += [f'bench_value{{part="{number // 20}",of="cpu{number % 20}"}} {number}.5\n' for number in range(lines)]
    return "".join(body).encode()


def http(body, counts):
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    def answer_of(received):
        if not received.endswith(b"\r\n\r\n"):
            return None
        COUNTS["scrapes"] += counts
        return answer

    return answer_of


def modbus(received):
    if len(received) < 12:
        return None
    count = int.from_bytes(received[10:12], "big") * 2
    answer = received[6:8] + bytes([count]) + bytes(count)
    return received[:4] + len(answer).to_bytes(2, "big") + answer


def listen(port, answer_of):
    """Answers each request on a port; `answer_of` returns None for the begin of one. Plain system calls: asyncio needs several times as long."""
    loop, received = asyncio.get_running_loop(), {}
    listener = socket.create_server(("0.0.0.0", port), backlog=4096)
    listener.setblocking(False)

    def end(connection):
        loop.remove_reader(connection)
        del received[connection]
        connection.close()

    def read(connection):
        try:
            data = connection.recv(65536)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            return end(connection)
        received[connection] += data
        if (answer := answer_of(received[connection])) is None:
            return
        received[connection] = b""
        try:
            sent = connection.send(answer)
            if sent < len(answer):
                connection.setblocking(True)
                connection.sendall(answer[sent:])
                connection.setblocking(False)
        except ConnectionError:
            end(connection)

    def accept():
        for _ in range(64):
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            connection.setblocking(False)
            received[connection] = b""
            loop.add_reader(connection, read, connection)
            read(connection)

    loop.add_reader(listener, accept)


async def slow(reader, writer):
    """Answers one byte a second."""
    try:
        while True:
            writer.write(b"H")
            await writer.drain()
            await asyncio.sleep(1)
    except (asyncio.CancelledError, ConnectionError):
        writer.close()


async def lying(reader, writer):
    try:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + bytes(range(256)) * 4096)
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()


async def exporters(plan):
    if lines := plan.get("lines"):
        listen(plan["http_port"], http(exposition(lines), counts=True))


async def documents(plan):
    if "json_port" in plan:
        document = json.dumps({f"v{number}": number for number in range(10)}).encode()
        listen(plan["json_port"], http(document, counts=False))


async def modbus_servers(plan):
    if "modbus_port" in plan:
        listen(plan["modbus_port"], modbus)


async def odd_ones(plan):
    for kind, port in (("slow", slow), ("lying", lying)):
        if f"{kind}_port" in plan:
            await asyncio.start_server(port, "0.0.0.0", plan[f"{kind}_port"], backlog=4096)


async def snmp_agents(plan):
    for address in plan.get("snmp", []):
        oids = sorted(tuple(int(part) for part in oid.split(".")) for oid in plan["oids"])
        Snmp.places = {oid: at for at, oid in enumerate(oids)}
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: Snmp(oids), (address, plan["snmp_port"]))


KINDS = (exporters, documents, modbus_servers, odd_ones, snmp_agents)


async def serve(kind, plan):
    await kind(plan)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps(COUNTS), flush=True)


def main():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    plan = json.loads(open(sys.argv[1]).read())
    if len(sys.argv) > 2:
        # Those of a site are other machines: these must not delay the requests of the poller.
        os.nice(10)
        return asyncio.run(serve(KINDS[int(sys.argv[2])], plan))
    # Each kind has a process, so that none waits for the interpreter of another.
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    of_kinds = [subprocess.Popen([sys.executable, "-B", *sys.argv, str(kind)], **pipes) for kind in range(len(KINDS))]
    for process in of_kinds:
        assert process.stdout.readline() == "ready\n"
    print("ready", flush=True)
    sys.stdin.read()
    answers = [json.loads(process.communicate("")[0]) for process in of_kinds]
    print(json.dumps({name: sum(answer[name] for answer in answers) for name in COUNTS}), flush=True)


main()
