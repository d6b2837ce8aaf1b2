"""A service over TLS as a BMC has it: Basic authentication, a redirect, gzip, and wrong answers.

usage: poll_once.py CERTIFICATE KEY

Prints its port. User and password are root and calvin/7.
"""

import base64
import gzip
import http.server
import json
import ssl
import sys
import time

POWER = {
    "PowerControl": [{"PowerConsumedWatts": 211}, {"PowerConsumedWatts": None}],
    "PowerSupplies": [{"Name": "PS1", "LineInputVoltage": "230.5"}, {"Name": "PS2", "Status": {"Health": "OK"}}],
    "Hostile": "\x1b[31mred\u202e",
}
ALLOWED = "Basic " + base64.b64encode(b"root:calvin/7").decode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.headers.get("Authorization") != ALLOWED:
            return self.answer(401, b"{}")
        if self.path == "/redfish/v1/old":
            return self.answer(302, b"", Location="/redfish/v1/Power?$expand=*")
        if self.path == "/redfish/v1/elsewhere":
            return self.answer(302, b"", Location="https://127.0.0.2/redfish/v1/Power")
        if self.path == "/redfish/v1/Power?$expand=*":
            return self.answer(200, gzip.compress(json.dumps(POWER).encode()), **{"Content-Encoding": "gzip"})
        if self.path == "/redfish/v1/bomb":
            return self.answer(200, gzip.compress(b"0" * (80 << 20)), **{"Content-Encoding": "gzip"})
        if self.path == "/redfish/v1/slow":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            for _ in range(100):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(1)
            return None
        return self.answer(404, b"no JSON")

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_port, flush=True)
    server.serve_forever()


main()
