#!/usr/bin/env python3
"""Samples a second out of the cache of a store and out of local files, in one run.

    bazel build --config=opt //server:ballast-server //client/ballastctl
    tests/benchmarks/compare_cache.py [--samples 512] [--rounds 5]

Draws receipts as tars and as Parquet, which an S3 server (rclone) serves. `fetch` fills the
cache; then, in each round, a server of its own reads epochs from the cache and another from
the same files on the disk, in turns. Prints medians by the processor time of the server and
by the clock, for servers that decode the images (`pixels`) and that send them as they are
(`encoded`). A cached epoch that asks the store for samples ends the run. Cache and files are
in the system's memory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(os.path.dirname(HERE))]

import compare_formats  # noqa: E402
from tests.integration.storage import s3_server  # noqa: E402

STORAGE = """
storage:
  s3: {{endpoint: "{endpoint}"}}
  # Of 72 MB little stays in memory from epoch to epoch.
  memory: {memory}
  cache: {{dir: {cache}, size: 1GiB}}
"""


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def run(programs, *arguments):
    done = subprocess.run(
        [programs.server, *arguments], check=False, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(done.stderr)


class Reads:
    """Where servers have read samples, of all rounds together."""

    def __init__(self, programs):
        self.programs = programs
        self.memory = self.cache = 0

    def count(self, address):
        status = subprocess.run(
            [self.programs.ctl, "--server", address, "status", "--json"], check=True,
            stdout=subprocess.PIPE,
        ).stdout  # fmt: skip
        storage = json.loads(status)["storage"]
        # Footers of Parquet take some kilobytes, samples millions of bytes.
        if int(storage.get("fetched_bytes", 0)) > 1e6:
            raise SystemExit("samples came out of the store, not out of the cache")
        self.memory += int(storage.get("memory_hits", 0))
        self.cache += int(storage.get("cache_hits", 0))


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", default="16MiB", help="storage.memory")
    parser.add_argument("--bin", default="bazel-bin", help="the folder of the programs")
    options = parser.parse_args()
    if s3_server.rclone() is None:
        raise SystemExit("needs rclone: deploy/setup.sh --tests unpacks it")
    os.environ.update(s3_server.KEYS)
    programs = compare_formats.Programs(options.bin)
    steps = options.samples // 32
    with tempfile.TemporaryDirectory() as work:
        root = os.path.join(work, "root")
        bucket = os.path.join(root, "bucket")
        for form in compare_formats.FORMATS.values():
            run(programs, "make-corpus", "--out", os.path.join(bucket, form), "--preset",
                "receipts", "--samples", str(steps * 32), "--format", form)  # fmt: skip
        for extension, form in compare_formats.FORMATS.items():
            for mode, model in compare_formats.MODES.items():
                text = compare_formats.CONFIG.format(
                    form=form, extension=extension, more=compare_formats.MORE[extension],
                    model=model,
                )  # fmt: skip
                local = os.path.join(bucket, form)
                folder = os.path.join(work, "%s-%s" % (form, mode))
                os.makedirs(folder)
                cached = text.replace("docs-*", "s3://bucket/%s/docs-*" % form)
                configs = {"files": write(local, mode + ".yaml", text)}
                run(programs, "index", "--config", configs["files"])
                # Remembers that no object changes, as a store knows its ETags.
                with s3_server.S3Server(root, "--dir-cache-time", "1h") as server:
                    configs["cache"] = write(
                        folder, "job.yaml", cached + STORAGE.format(
                            endpoint=server.endpoint, memory=options.memory,
                            cache=os.path.join(folder, "cache")),
                    )  # fmt: skip
                    run(programs, "index", "--config", configs["cache"])
                    run(programs, "fetch", "--config", configs["cache"], "--steps", str(steps))
                    compare(programs, configs, form, mode, steps, options.rounds)
    with open("/proc/loadavg", encoding="ascii") as file:
        print("load of the machine at the end: " + file.read().split()[0])


def compare(programs, configs, form, mode, steps, rounds):
    epochs = compare_formats.EPOCHS[mode]
    results = {name: [] for name in configs}
    reads = Reads(programs)
    checks = {"files": None, "cache": reads.count}
    for number in range(rounds):
        for name in list(configs)[:: 1 if number % 2 == 0 else -1]:
            results[name].append(
                compare_formats.pull(programs, configs[name], steps * epochs, checks[name])
            )
    for name, found in results.items():
        cpu, clock, memory = (statistics.median(r[i] for r in found) for i in range(3))
        samples = steps * 32 * epochs
        print(
            "%-10s %-8s %-6s %7.1f samples/s of processor time, %7.1f by the clock; peak %4.0f MB"
            % (form, mode, name, samples / cpu, samples / clock, memory)
        )
    for what, i in (("processor time", 0), ("the clock", 1)):
        pairs = [f[i] / c[i] for f, c in zip(results["files"], results["cache"])]
        print(
            "%-10s %-8s cache over files, of %s: median %.2f, %.2f to %.2f"
            % (form, mode, what, statistics.median(pairs), min(pairs), max(pairs))
        )
    print(
        "%-10s %-8s read %d times from the cache and %d times from memory, of %d samples"
        % (form, mode, reads.cache, reads.memory, steps * 32 * epochs * rounds)
    )


if __name__ == "__main__":
    main()
