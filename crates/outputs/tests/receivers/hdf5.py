"""Other readers of the output `hdf5`, and Colmet's collector as a second writer of the same records.

collect FILE FRAME…   the collector writes the records of these frames into a new file
compare OURS THEIRS   each column of theirs is in ours, with equal values
live FILE             reads the file while it grows, until it had eight last rows
rows FILE…            prints the instants of each table, after comparing h5py, PyTables and h5dump
"""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings

import h5py
import numpy
import tables

warnings.simplefilter("ignore")
# The collector ends at a record of nvidia: it has no table for it.
NVIDIA, NVIDIA_BYTES = b"nvidiastats_default\0", 582


def hdf5_tables(path):
    with h5py.File(path, "r") as file:
        return {f"{job}/{name}": file[job][name][:] for job in file for name in file[job]}


def collect(path, *frames):
    import zmq

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    main = "from colmet.collector.main import main; main()"
    options = ["-s", "0.1", "--zeromq-bind-uri", uri, "--hdf5-filepath", path]
    options += ["--hdf5-complevel", "5", "-vv"]
    collector = subprocess.Popen([sys.executable, "-u", "-c", main, *options], stderr=subprocess.PIPE, text=True)
    try:
        sender = zmq.Context.instance().socket(zmq.PUSH)
        sender.connect(uri)
        expected = 0
        for frame in frames:
            with open(frame, "rb") as file:
                message = file.read()
            at = message.find(NVIDIA)
            if at >= 0:
                message = message[:at] + message[at + NVIDIA_BYTES:]
            expected += message.count(b"_default\0")
            sender.send(message)
        # A signal before it forgets what it wrote would repeat that: it has forgotten it when it receives again.
        written = 0
        for line in collector.stderr:
            pushed = re.search(r"HDF5: Pushed (\d+) metrics", line)
            written += int(pushed[1]) if pushed else 0
            if written == expected and "Gathering the metrics" in line:
                break
        collector.send_signal(signal.SIGTERM)
        threading.Thread(target=collector.stderr.read, daemon=True).start()
        assert collector.wait(60) == 0
    finally:
        collector.kill()
    print(expected)


def compare(ours, theirs):
    ours, theirs, columns = hdf5_tables(ours), hdf5_tables(theirs), 0
    assert len(theirs) >= 9, list(theirs)
    for name, table in theirs.items():
        for column in table.dtype.names:
            assert ours[name].dtype[column] == table.dtype[column], (name, column)
            numpy.testing.assert_array_equal(ours[name][column], table[column], f"{name} {column}")
            columns += 1
    only = {f"{name}.{column}" for name, table in ours.items() for column in table.dtype.names
            if name not in theirs or column not in theirs[name].dtype.names}
    print(json.dumps({"columns": columns, "only": sorted({one.split("/")[1] for one in only})}))


def read_once(path):
    """Reads each table by both libraries; returns the last second."""
    last = 0
    with h5py.File(path, "r") as file:
        for job in file:
            for name in file[job]:
                seconds = file[job][name]["timestamp"]
                assert (numpy.diff(seconds) == 1).all(), (job, name, seconds)
                last = max(last, int(seconds[-1]) if len(seconds) else 0)
    file = tables.open_file(path)
    for table in file.walk_nodes("/", "Table"):
        seconds = table.col("timestamp")
        assert (numpy.diff(seconds) == 1).all(), (table, seconds)
        assert len(table.read_where("timestamp >= 0")) >= len(seconds)
    file.close()
    return last


def live(path):
    seconds = set()
    bound = time.monotonic() + 120
    while len(seconds) < 8:
        assert time.monotonic() < bound, seconds
        seconds.add(read_once(path))
        if len(seconds) % 4 == 1:
            subprocess.run(["h5dump", "-d", "/job_7/perfhwstats_default", path], check=True, stdout=subprocess.DEVNULL)


def rows(*paths):
    out = {}
    for path in paths:
        by_h5py = hdf5_tables(path)
        file = tables.open_file(path)
        by_pytables = {table._v_pathname[1:]: table.read() for table in file.walk_nodes("/", "Table")}
        file.close()
        assert by_h5py.keys() == by_pytables.keys()
        for name, table in by_h5py.items():
            assert (table == by_pytables[name]).all(), name
            out.setdefault(name, []).extend(table["timestamp"].tolist())
        subprocess.run(["h5dump", path], check=True, stdout=subprocess.DEVNULL)
    print(json.dumps(out))


if __name__ == "__main__":
    {"collect": collect, "compare": compare, "live": live, "rows": rows}[sys.argv[1]](*sys.argv[2:])
