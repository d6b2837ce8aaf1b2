"""A BMC on the UDP port of its argument, or on a free one, which it prints: RMCP+ with cipher suite 17 only, and a power of 248 W.

IPMI 2.0, sections 13.17 to 13.32, and DCMI 1.5, section 6.6.1. Written from these documents, not from the client that is tested.
"""

import hashlib
import hmac
import os
import socket
import struct
import sys

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

USER, PASSWORD = b"root", b"calvin"
GUID = bytes(range(16))
WATTS = 248


def mac(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


def checksum(data):
    return -sum(data) & 0xFF


class Session:
    """The session of one client."""

    def __init__(self, console, own):
        self.console, self.own = console, own
        self.random, self.number = os.urandom(16), 0

    def prove(self, payload):
        """RAKP message 1 to message 2."""
        self.console_random, self.role = payload[8:24], payload[24:25]
        self.name = payload[28 : 28 + payload[27]]
        if self.name != USER:
            return bytes([payload[0], 0x0D, 0, 0]) + self.console
        named = self.role + bytes([len(self.name)]) + self.name
        check = mac(PASSWORD, self.console + self.own + self.console_random + self.random + GUID + named)
        key = mac(PASSWORD, self.console_random + self.random + named)
        self.proof = mac(PASSWORD, self.random + self.console + named)
        self.session_key = key
        self.integrity = mac(key, b"\x01" * 20)
        self.aes = mac(key, b"\x02" * 20)[:16]
        return bytes([payload[0], 0, 0, 0]) + self.console + self.random + GUID + check

    def accept(self, payload):
        """RAKP message 3 to message 4."""
        if payload[8:40] != self.proof:
            return bytes([payload[0], 0x0F, 0, 0]) + self.console
        check = mac(self.session_key, self.console_random + self.own + GUID)[:16]
        return bytes([payload[0], 0, 0, 0]) + self.console + check

    def open(self, packet):
        """The message of a packet; None if it is not of this session."""
        if mac(self.integrity, packet[4:-16])[:16] != packet[-16:]:
            return None
        length = struct.unpack("<H", packet[14:16])[0]
        payload = packet[16 : 16 + length]
        decryptor = Cipher(algorithms.AES(self.aes), modes.CBC(payload[:16])).decryptor()
        plain = decryptor.update(payload[16:]) + decryptor.finalize()
        return plain[: -1 - plain[-1]]

    def seal(self, message):
        self.number += 1
        pad = -(len(message) + 1) % 16
        plain = message + bytes(range(1, pad + 1)) + bytes([pad])
        vector = os.urandom(16)
        encryptor = Cipher(algorithms.AES(self.aes), modes.CBC(vector)).encryptor()
        payload = vector + encryptor.update(plain) + encryptor.finalize()
        body = b"\x06\xc0" + self.console + struct.pack("<IH", self.number, len(payload)) + payload
        pad = -(len(body) + 2) % 4
        body += b"\xff" * pad + bytes([pad, 7])
        return b"\x06\x00\xff\x07" + body + mac(self.integrity, body)[:16]


def answer(function, command, data):
    """Completion code and data of a command."""
    match function, command:
        case 0x06, 0x38:  # Get Channel Authentication Capabilities
            return bytes([0, 1, 0x80, 0x04, 0x02, 0, 0, 0, 0])
        case 0x06, 0x54:  # Get Channel Cipher Suites
            return bytes([0, 1, 0xC0, 17, 0x03, 0x44, 0x81]) if data[2] & 0x3F == 0 else b"\x00\x01"
        case 0x06, 0x3B:  # Set Session Privilege Level
            return bytes([0, data[0]])
        case 0x06, 0x3C:  # Close Session
            return b"\x00"
        case 0x06, 0x01:  # Get Device ID
            return bytes([0, 0x20, 1, 2, 3, 2, 0xBF, 0xA2, 2, 0, 0, 1])
        case 0x2C, 0x02:  # DCMI Get Power Reading
            return b"\x00\xdc" + struct.pack("<HHHHIIB", WATTS, 200, 300, WATTS, 0, 1000, 0x40)
        case 0x2C, 0x01:  # DCMI Get Capabilities Info
            return bytes([0, 0xDC, 1, 5, 2, 0, 1, 1])
        case 0x30, 0xB3:  # Dell's power
            return b"\x00" + struct.pack("<HH", WATTS, 11)
    return b"\xc1"


def reply(message):
    """The response to a message on the LAN."""
    function, sequence, command = message[1] >> 2, message[4], message[5]
    head = bytes([message[3], (function | 1) << 2])
    body = bytes([0x20, sequence, command]) + answer(function, command, message[6:-1])
    return head + bytes([checksum(head)]) + body + bytes([checksum(body)])


def plain(kind, payload):
    return b"\x06\x00\xff\x07\x06" + bytes([kind]) + bytes(8) + struct.pack("<H", len(payload)) + payload


def handle(packet, sessions):
    if packet[4] == 0:  # version 1.5, before a session
        inner = reply(packet[14:])
        return b"\x06\x00\xff\x07\x00" + bytes(8) + bytes([len(inner)]) + inner
    kind, payload = packet[5], packet[16:]
    match kind & 0x3F:
        case 0x10:
            tag, console = payload[0], payload[4:8]
            if (payload[12], payload[20], payload[28]) != (3, 4, 1):
                return plain(0x11, bytes([tag, 0x11, 0, 0]) + console)
            own = struct.pack("<I", 0x1000 + len(sessions))
            sessions[own] = Session(console, own)
            algorithms_ = payload[8:32]
            return plain(0x11, bytes([tag, 0, payload[1], 0]) + console + own + algorithms_)
        case 0x12:
            return plain(0x13, sessions[payload[4:8]].prove(payload))
        case 0x14:
            return plain(0x15, sessions[payload[4:8]].accept(payload))
        case 0x00 if kind == 0x00:
            return plain(0x00, reply(payload[: struct.unpack("<H", packet[14:16])[0]]))
        case 0x00:
            session = sessions.get(packet[6:10])
            message = session and session.open(packet)
            return message and session.seal(reply(message))
    return None


def main():
    serving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    serving.bind(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    print(serving.getsockname()[1], flush=True)
    sessions = {}
    while True:
        packet, client = serving.recvfrom(4096)
        response = handle(packet, sessions)
        if response:
            serving.sendto(response, client)


main()
