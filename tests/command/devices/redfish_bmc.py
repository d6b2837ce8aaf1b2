"""A Redfish service with sessions on a free port, which it prints (DSP0266, section 13.3.4).

It prints each request with its user. A session is lost after the number of requests of the first argument, as after a restart of a BMC.
"""

import base64
import http.server
import json
import sys

PASSWORD = base64.b64encode(b"root:calvin").decode()
SESSIONS = "/redfish/v1/SessionService/Sessions"
DOCUMENTS = {
    "/redfish/v1/": {"Links": {"Sessions": {"@odata.id": SESSIONS}}},
    "/redfish/v1/Chassis/1/Power": {"PowerControl": [{"PowerConsumedWatts": 245}]},
    "/redfish/v1/Chassis/1/Thermal": {"Temperatures": [{"ReadingCelsius": 41}]},
}
opened, uses = [], {}


class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, document=None, headers=()):
        body = json.dumps(document or {}).encode()
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def user(self):
        if token := self.headers.get("X-Auth-Token"):
            return token
        return "password" if self.headers.get("Authorization") else "nobody"

    def log(self):
        print(self.command, self.path, self.user(), flush=True)

    def allowed(self):
        token = self.headers.get("X-Auth-Token")
        if token in uses:
            uses[token] += 1
            if uses[token] > int(sys.argv[1]):
                del uses[token]
        return token in uses or self.headers.get("Authorization") == f"Basic {PASSWORD}"

    def do_GET(self):
        self.log()
        document = DOCUMENTS.get(self.path)
        if self.path != "/redfish/v1/" and not self.allowed():
            return self.reply(401)
        return self.reply(200 if document else 404, document)

    def do_POST(self):
        self.log()
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != SESSIONS or given != {"UserName": "root", "Password": "calvin"}:
            return self.reply(401)
        token = f"token{len(opened) + 1}"
        opened.append(token)
        uses[token] = 0
        path = f"{SESSIONS}/{len(opened)}"
        return self.reply(201, {"@odata.id": path}, [("X-Auth-Token", token), ("Location", path)])

    def do_DELETE(self):
        self.log()
        uses.pop(self.user(), None)
        self.reply(200)

    def log_message(self, *_):
        pass


service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
print(service.server_address[1], flush=True)
service.serve_forever()
