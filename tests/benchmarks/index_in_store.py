#!/usr/bin/env python3
"""The index of many rows of Parquet in an S3 store: time, requests and bytes.

    bazel build --config=opt //server:ballast-server //tests/integration/parquet:write_rows
    tests/benchmarks/index_in_store.py [--rows 1000000]

Writes rows of one picture of 1 KiB each, 1,000 to a row group and 25,000 to a file, serves
them with rclone (deploy/setup.sh --tests) behind a proxy that counts, and indexes them
with `ballast-server index`, once cold and once to find it up to date. Then the same
files as local ones. Prints the time by the clock, the processor time and the peak of
memory of the program, and what went over the wire.
"""

import argparse
import asyncio
import glob
import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from tests.integration.storage import s3_server  # noqa: E402

ROWS, GROUPS, IMAGE = 1000, 25, 1024
CONFIG = """
sources: [{{name: rows, format: parquet, path: "{where}/rows-*.parquet"}}]
model: {{profile: qwen2_5_vl, tokenizer: bytes}}
batch: {{global: 32, micro: 8, max_tokens: 4096}}
topology: {{modules: {{vision: {{dp: 1}}, language: {{dp: 1}}}}}}
storage: {{s3: {{endpoint: "{endpoint}"}}}}
"""


class Proxy(threading.Thread):
    """Passes connections on to a store; counts requests, and bytes of the answers."""

    def __init__(self, host, port):
        super().__init__(daemon=True)
        self.to = (host, port)
        self.requests = 0
        self.bytes = 0
        self.port = None
        self._ready = threading.Event()

    def run(self):
        asyncio.run(self._serve())

    async def _serve(self):
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    def started(self):
        self.start()
        self._ready.wait()
        return self

    async def _pass(self, reader, writer):
        there, back = await asyncio.open_connection(*self.to)

        async def requests():
            while data := await reader.read(65536):
                # Requests of a reader have no bodies.
                self.requests += data.count(b" HTTP/1.1\r\n")
                back.write(data)
                await back.drain()
            back.close()

        async def answers():
            while data := await there.read(1 << 20):
                self.bytes += len(data)
                writer.write(data)
                await writer.drain()
            writer.close()

        await asyncio.gather(requests(), answers(), return_exceptions=True)


def program(folder, *paths):
    found = [os.path.join(folder, path) for path in paths]
    return next(path for path in found if os.path.exists(path))


def index(server, config):
    """Seconds by the clock and of the processor, and the peak of memory in MB."""
    start = time.monotonic()
    process = subprocess.Popen([server, "index", "--config", config], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit("ballast-server index failed")
    spent = usage.ru_utime + usage.ru_stime
    return time.monotonic() - start, spent, usage.ru_maxrss * 1024 / 1e6


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("--bin", default="bazel-bin", help="the folder of the programs")
    options = parser.parse_args()
    server = program(options.bin, "server/ballast-server", "ballast-server")
    write = program(options.bin, "tests/integration/parquet/write_rows", "write_rows")
    s3_server.skip_without_rclone()
    os.environ.update(s3_server.KEYS)
    files = max(options.rows // (ROWS * GROUPS), 1)
    with tempfile.TemporaryDirectory() as work:
        bucket = os.path.join(work, "root", "bucket")
        os.makedirs(bucket)
        subprocess.run(
            [write, bucket + "/rows", str(files), str(GROUPS), str(ROWS), str(IMAGE)], check=True
        )
        size = sum(os.path.getsize(path) for path in glob.glob(bucket + "/*"))
        print("%d rows in %d files, %.0f MB" % (files * GROUPS * ROWS, files, size / 1e6))
        # A store knows its ETags, and its contents stay as they are.
        with s3_server.S3Server(work + "/root", "--dir-cache-time", "1h") as store:
            host, port = store.address.split(":")
            proxy = Proxy(host, int(port)).started()
            for where, name in (("s3://bucket", "store"), (bucket, "files")):
                config = os.path.join(work, name + ".yaml")
                with open(config, "w", encoding="utf-8") as file:
                    file.write(
                        CONFIG.format(where=where, endpoint="http://127.0.0.1:%d" % proxy.port)
                    )
                for what in ("cold", "up to date"):
                    requests, received = proxy.requests, proxy.bytes
                    clock, cpu, peak = index(server, config)
                    print(
                        "%-5s %-10s %6.1f s, %6.1f s of processor time, peak %5.0f MB, "
                        "%5d requests, %7.1f MB received"
                        % (name, what, clock, cpu, peak, proxy.requests - requests,
                           (proxy.bytes - received) / 1e6)
                    )  # fmt: skip
        with open("/proc/loadavg", encoding="ascii") as file:
            print("load of the machine at the end: " + file.read().split()[0])


if __name__ == "__main__":
    main()
