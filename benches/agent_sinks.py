"""Where the measured programs send to. A sink runs beside the program, takes what comes, answers as
the real one does, and notes what it was, so that a program that measures nothing cannot look cheap.
Each tells how many ticks, samples and different series came; one that gets every series at every tick
does not count samples.

`agent_sinks.py pull` is colmet's collector as far as its node needs one; it needs pyzmq.
"""

import ctypes
import gzip
import http.client
import http.server
import json
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections import defaultdict


class Batches:
    """jobmeter's server as far as an agent needs one: acknowledges every batch, and reads it."""

    def __init__(self, period):
        sink = self
        self._period = period

        class Handler(http.server.BaseHTTPRequestHandler):
            """Requests of frames over kept connections."""

            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                """Answers as `proto/batch.proto` has it."""
                answer = sink.take(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                """Nothing is said of a request."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._zstd = ctypes.CDLL("libzstd.so.1")
        self._zstd.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
        self._zstd.ZSTD_decompress.restype = ctypes.c_size_t
        self._lock = threading.Lock()
        self._ticks = set()
        self.bytes = 0
        self._samples = 0
        # Keyed by (metric, labels), then by job: the last value, and the seconds that have a value.
        self.values = defaultdict(dict)
        self.seconds = defaultdict(set)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self):
        """What the agent is told."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def ticks(self):
        """How many periods had samples."""
        with self._lock:
            return len(self._ticks)

    def samples(self):
        """How many samples came."""
        with self._lock:
            return self._samples

    def series(self):
        """How many series had a sample."""
        with self._lock:
            return sum(map(len, self.values.values()))

    def close(self):
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()

    def take(self, frames):
        """The answer to a request of frames."""
        acks, at = b"", 0
        while at < len(frames):
            magic, length, _ = struct.unpack_from("<4sII", frames, at)
            if magic != b"JMB1":
                raise ValueError(f"no frame at byte {at}")
            batch = fields(self._decompress(frames[at + 12 : at + 12 + length]))
            at += 12 + length
            boot, seq = batch[2][0], batch.get(3, [0])[0]
            ack = _field(1, boot) + b"\x10" + _varint(seq)
            acks += _field(1, ack)
            with self._lock:
                self._note(batch)
        with self._lock:
            self.bytes += len(frames)
        return acks

    def _decompress(self, payload):
        size = self._zstd.ZSTD_getFrameContentSize(payload, ctypes.c_size_t(len(payload)))
        out = ctypes.create_string_buffer(size)
        sizes = ctypes.c_size_t(size), ctypes.c_size_t(len(payload))
        if self._zstd.ZSTD_decompress(out, sizes[0], payload, sizes[1]) != size:
            raise ValueError("a payload cannot be decompressed")
        return out.raw

    def _note(self, batch):
        """Keeps the values; see the columns of `Batch` and `Table` in proto/batch.proto."""
        table = fields(batch.get(4, [b""])[0])
        metrics = [fields(metric) for metric in table.get(1, [])]
        labels = [b""] + table.get(4, [])
        of_metric, of_labels = packed(table, 5), packed(table, 7)
        jobs = packed(table, 9) or [0] * len(of_metric)
        steps, reals = iter(packed(batch, 8)), iter(_doubles(batch.get(9, [])))
        refs, place, now = iter(packed(batch, 7)), -1, 0
        for delta, count in zip(packed(batch, 5), packed(batch, 6)):
            now += _unzigzag(delta)
            # Samples that follow a slow source within a tick may have a different instant.
            second = now // 1_000_000
            self._ticks.add(second // self._period)
            self._samples += count
            for _ in range(count):
                ref = next(refs)
                place += 1 + _unzigzag(ref >> 1)
                metric = metrics[of_metric[place]]
                divisor = metric.get(4, [1])[0]
                value = next(reals) if ref & 1 else _unzigzag(next(steps)) / divisor
                label = labels[of_labels[place]] if of_labels else b""
                name = metric[1][0].decode(), label.decode()
                self.values[name][jobs[place]] = value
                self.seconds[name].add(second)
                self.note(name, now, value)

    def note(self, name, at_us, value):
        """A sample of a metric with labels; for those who want more than the last one."""


class Pull:
    """colmet's collector as far as its node needs one, in a process with pyzmq."""

    def __init__(self, python):
        self._process = subprocess.Popen(
            [python, __file__, "pull"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = self._process.stdout.readline().strip()

    def ask(self):
        """Messages so far, and the records of the last one by (backend, job), as their sizes."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        count, *records = self._process.stdout.readline().split()
        return int(count), [tuple(record.split(":")) for record in records]

    def ticks(self):
        """How many samples of the node came."""
        return self.ask()[0]

    def series(self):
        """How many counters the records of a message have."""
        return sum(int(counters) for *_, counters in self.ask()[1])

    def samples(self):
        """Not counted: each message has the same."""
        return None

    def close(self):
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()


class Scrapes:
    """Prometheus as far as a node exporter needs one: asks for everything once in a period, gzipped,
    over one connection."""

    def __init__(self, port, period):
        self._port = port
        self._period = period
        self._count = 0
        self._end = threading.Event()
        self._body = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ticks(self):
        """How many scrapes were answered."""
        return self._count

    def series(self):
        """How many series the last answer had."""
        if not self._body:
            return 0
        lines = gzip.decompress(self._body).splitlines()
        return sum(not line.startswith(b"#") for line in lines)

    def samples(self):
        """Not counted: each answer has the same."""
        return None

    def close(self):
        """Asks no more."""
        self._end.set()
        self._thread.join()

    def _run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        while not self._end.wait(self._period - time.time() % self._period):
            try:
                connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
                response = connection.getresponse()
                body = response.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                continue
            if response.status == 200:
                self._count += 1
                self._body = body


class Lines:
    """Graphite as far as collectd needs it: takes lines of a name, a value and a time."""

    def __init__(self, period):
        sink = self
        self._lock = threading.Lock()
        self._period = period
        self._ticks = set()
        self._names = set()
        self._samples = 0

        class Handler(socketserver.StreamRequestHandler):
            """A connection that stays."""

            def handle(self):
                """Notes each line."""
                for line in self.rfile:
                    sink.take(line)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, line):
        """Notes a line."""
        name, _, at = line.split()
        with self._lock:
            self._names.add(name)
            self._ticks.add(int(at) // self._period)
            self._samples += 1

    def ticks(self):
        """How many periods had samples."""
        with self._lock:
            return len(self._ticks)

    def series(self):
        """How many names came."""
        with self._lock:
            return len(self._names)

    def samples(self):
        """How many lines came."""
        with self._lock:
            return self._samples

    def close(self):
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()


class Charts:
    """Netdata keeps what it reads itself: it is asked before and after."""

    def __init__(self, port, period):
        self._port = port
        self._period = period
        self._first = None

    def ask(self, what):
        """An answer of its interface, or None while there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", f"/api/v1/{what}")
            response = connection.getresponse()
            return json.loads(response.read()) if response.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def ticks(self):
        """How often its chart of the processors was filled, since some instant."""
        chart = self.ask("chart?chart=system.cpu")
        return chart["last_entry"] // self._period if chart else 0

    def series(self):
        """How many dimensions its charts have."""
        charts = self.ask("charts")["charts"].values()
        return sum(len(chart["dimensions"]) for chart in charts)

    def samples(self):
        """Not counted: every chart is filled at each tick."""
        return None

    def close(self):
        """Nothing is open."""


def fields(message):
    """A protobuf message as its fields' values in order, by number; none is interpreted."""
    found, at = defaultdict(list), 0
    while at < len(message):
        key, at = _read_varint(message, at)
        if key & 7 == 0:
            value, at = _read_varint(message, at)
        elif key & 7 == 1:
            value, at = message[at : at + 8], at + 8
        else:
            length, at = _read_varint(message, at)
            value, at = message[at : at + length], at + length
        found[key >> 3].append(value)
    return found


def packed(message, number):
    """The integers of a repeated field, packed or not."""
    values = []
    for value in message.get(number, []):
        if isinstance(value, int):
            values.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = _read_varint(value, at)
            values.append(one)
    return values


def _doubles(chunks):
    return [value for chunk in chunks for (value,) in struct.iter_unpack("<d", chunk)]


def _read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _field(number, data):
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _unzigzag(value):
    return value >> 1 ^ -(value & 1)


# Records of colmet 0.6: a header of 526 bytes, and a body whose size depends on the backend.
HEADER = struct.Struct("<255s255sQQ")
SIZES = {"taskstats_default": 762, "procstats_default": 9202, "jobprocstats_default": 606}


def _records(message, counters):
    """Each record of a message as `backend:job:counters`; `counters` has the class of each backend."""
    found, at = [], 0
    while at < len(message):
        backend, _, job, _ = HEADER.unpack_from(message, at)
        name = backend.rstrip(b"\0").decode()
        found.append(f"{name}:{job}:{len(counters[name]._counter_definitions)}")
        at += SIZES[name]
    return found


def _pull():
    """Takes messages; for each line on standard input, says what came."""
    import zmq
    from colmet.common.metrics import counters_registry

    socket = zmq.Context().socket(zmq.PULL)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    print(f"tcp://127.0.0.1:{port}", flush=True)
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    count, last = 0, b""
    while True:
        ready = dict(poller.poll())
        if socket in ready:
            last = socket.recv()
            count += 1
        if sys.stdin.fileno() in ready:
            if not sys.stdin.readline():
                return
            print(count, *_records(last, counters_registry), flush=True)


if __name__ == "__main__" and sys.argv[1:] == ["pull"]:
    _pull()
