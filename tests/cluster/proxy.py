"""A TCP proxy in front of a node's server, which delays, breaks or holds back bytes.

    python3 -m tests.cluster.proxy PORT TARGET_HOST TARGET_PORT

Prints `ready PORT` once it listens; with port 0 the system chooses. Obeys lines on
standard input, and answers each with a line once it is in force:

    none          bytes pass
    delay S       each piece of bytes comes S seconds later
    reset CHANCE  all connections are reset, and each later piece with this chance
    hold          no byte passes; connections stay open
    hold-in       no byte passes to the server; its own do

and, each with this chance for a piece that the server sends:

    cut CHANCE     the connection ends in good order in the middle of it
    repeat CHANCE  a whole answer of HTTP comes twice
    shorter CHANCE, longer CHANCE
                   an answer of HTTP says that it has fewer or more bytes than it has

`falsified` changes nothing; its answer ends with the number of such pieces so far.

It ends with its input.
"""

import asyncio
import os
import random
import re
import socket
import struct
import sys

_PIECE = 1 << 16
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    def __init__(self, host, port):
        self._target = host, port
        self._mode = "none"
        self._value = 0.0
        self.falsified = 0
        self._changed = asyncio.Condition()
        self._writers = set()
        self._random = random.Random(port)

    async def obey(self, line):
        mode, *value = line.split()
        async with self._changed:
            self._mode = mode
            self._value = float(value[0]) if value else 0.0
            self._changed.notify_all()
        if mode == "reset":
            for writer in list(self._writers):
                _reset(writer)

    async def accept(self, client_in, client_out):
        pair = {client_out}
        self._writers.add(client_out)
        ways = []
        try:
            server_in, server_out = await asyncio.open_connection(*self._target)
            pair.add(server_out)
            self._writers.add(server_out)
            if client_out.is_closing():
                raise ConnectionResetError
            ways = [
                asyncio.ensure_future(self._pass(client_in, server_out, inward=True)),
                asyncio.ensure_future(self._pass(server_in, client_out, inward=False)),
            ]
            await asyncio.gather(*ways)
        except OSError:
            for writer in pair:
                _reset(writer)
        for way in ways:
            way.cancel()
        for writer in pair:
            writer.close()
        self._writers -= pair

    async def _pass(self, reader, writer, inward):
        """Passes bytes on until the end of one direction."""
        while True:
            piece = await reader.read(_PIECE)
            if self._mode == "delay":
                await asyncio.sleep(self._value)
            async with self._changed:
                await self._changed.wait_for(lambda: not self._holds(inward))
            if self._mode == "reset" and self._random.random() < self._value:
                raise ConnectionResetError
            cut = False
            if not inward and self._random.random() < self._value:
                cut = self._mode == "cut"
                before, piece = piece, self._falsify(piece)
                self.falsified += piece != before
            if writer.is_closing():
                raise ConnectionResetError
            if not piece:
                writer.write_eof()
                return
            writer.write(piece)
            await writer.drain()
            if cut:
                writer.write_eof()
                return

    def _falsify(self, piece):
        if self._mode == "cut":
            return piece[: self._random.randrange(1, max(len(piece), 2))]
        if not piece.startswith(b"HTTP/1.1 2"):
            return piece
        if self._mode == "repeat":
            head, _, body = piece.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
            whole = length is not None and len(body) == int(length[1])
            return piece + piece if whole else piece
        if self._mode in ("shorter", "longer"):
            sign = -1 if self._mode == "shorter" else 1
            return re.sub(
                rb"(?i)(\r\ncontent-length: )(\d+)",
                lambda found: b"%b%d" % (
                    found[1],
                    max(int(found[2]) + sign * self._random.randint(1, 1000), 0),
                ),
                piece,
                count=1,
            )  # fmt: skip
        return piece

    def _holds(self, inward):
        return self._mode == "hold" or (self._mode == "hold-in" and inward)


def _reset(writer):
    """Closes the connection at once, as seen from its other end."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    writer.transport.abort()


async def serve(port, host, target_port):
    proxy = Proxy(host, target_port)
    server = await asyncio.start_server(proxy.accept, "0.0.0.0", port)
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    print("ready", server.sockets[0].getsockname()[1], flush=True)
    while line := (await orders.readline()).decode().strip():
        if line == "falsified":
            line = f"falsified {proxy.falsified}"
        else:
            await proxy.obey(line)
        print(line, flush=True)


if __name__ == "__main__":
    asyncio.new_event_loop().run_until_complete(
        serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    )
    os._exit(0)  # whatever connections are open
