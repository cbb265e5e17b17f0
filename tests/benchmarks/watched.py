#!/usr/bin/env python3
"""Measures the cost of monitoring a server: processor time per image, and images per
second, without monitoring, and with a scraper that reads /metrics every second and a
`ballastctl top` (docs/measurements/delivery.md, "Instruments").

    tests/benchmarks/watched.py --programs DIR [--rounds N] [--steps N]

DIR: a folder with bin/ballast-server, bin/ballastctl and bin/ballast-rank. Each
round measures both, one after the other, in an order that alternates.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request


class Server:
    """A server with one thread over drawn receipts, and its metrics."""

    def __init__(self, programs, folder):
        self._programs = programs
        config = os.path.join(folder, "ballast.yaml")
        self._run("ballast-server", "make-corpus", "--out", folder, "--samples", "256")
        with open(config, encoding="utf-8") as file:
            text = file.read()
        text, changed = re.subn(
            r"^serve: \{.*\}$",
            'serve: {listen: ["127.0.0.1:0"], http: "127.0.0.1:0", threads: 1, memory: 512MiB}',
            text,
            flags=re.MULTILINE,
        )
        assert changed == 1, text
        with open(config, "w", encoding="utf-8") as file:
            file.write(text)
        self._run("ballast-server", "index", "--config", config)
        self._process = subprocess.Popen(
            [self._path("ballast-server"), "serve", "--config", config],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.http = None
        while self.http is None:
            found = re.search(r"page at (http://[\d.:]+)/", self._process.stderr.readline())
            self.http = found and found[1]
        self.address = self._process.stdout.readline().split()[1]

    def _path(self, program):
        return os.path.join(self._programs, "bin", program)

    def _run(self, program, *arguments):
        return subprocess.run(
            [self._path(program), *arguments], check=True, stdout=subprocess.PIPE
        ).stdout

    def train(self, step, steps):
        self._run(
            "ballast-rank", "--server", self.address,
            "--step", str(step), "--steps", str(steps),
        )  # fmt: skip

    def top(self):
        return subprocess.Popen(
            [self._path("ballastctl"), "--server", self.address, "top", "--interval", "1"],
            stdout=subprocess.DEVNULL,
        )

    def images(self):
        told = self._run(
            "ballastctl", "--server", self.address, "metrics", "--json",
            "--prefix", "ballast_images",
        )  # fmt: skip
        return sum(value for name, value in json.loads(told).items())

    def processor_seconds(self):
        with open(f"/proc/{self._process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()


class Watchers:
    """Runs a scraper and a `top` while it is open."""

    def __init__(self, server):
        self._server = server
        self._done = threading.Event()
        self._scraper = threading.Thread(target=self._scrape)

    def _scrape(self):
        while not self._done.wait(1):
            urllib.request.urlopen(self._server.http + "/metrics").read()

    def __enter__(self):
        self._top = self._server.top()
        self._scraper.start()

    def __exit__(self, *_):
        self._done.set()
        self._scraper.join()
        self._top.terminate()
        self._top.wait()


def measure(server, step, steps, watched):
    """(images/s, processor ms per image) over the given number of steps from `step` on."""
    images, used, began = server.images(), server.processor_seconds(), time.monotonic()
    if watched:
        with Watchers(server):
            server.train(step, steps)
    else:
        server.train(step, steps)
    seconds = time.monotonic() - began
    used = server.processor_seconds() - used
    images = server.images() - images
    return images / seconds, 1e3 * used / images


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--programs", required=True)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    found = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        server = Server(arguments.programs, folder)
        try:
            server.train(0, arguments.steps)
            step = arguments.steps
            for number in range(arguments.rounds):
                for watched in (number % 2 == 0, number % 2 == 1):
                    measured = measure(server, step, arguments.steps, watched)
                    step += arguments.steps
                    found[watched].append(measured)
                    print(
                        "watched" if watched else "alone",
                        "%.1f images/s, %.3f processor ms an image" % measured,
                        file=sys.stderr,
                    )
        finally:
            server.stop()
    for name, which in (("images/s", 0), ("processor ms an image", 1)):
        alone = [m[which] for m in found[False]]
        ratios = [w[which] / a for w, a in zip(found[True], alone)]
        print(
            f"{name}: {statistics.median(alone):.4g} alone,"
            f" {statistics.median(m[which] for m in found[True]):.4g} watched;"
            f" watched over alone, by round: median {statistics.median(ratios):.4f},"
            f" {min(ratios):.4f} to {max(ratios):.4f};"
            f" alone by itself {min(alone):.4g} to {max(alone):.4g}"
        )


if __name__ == "__main__":
    main()
