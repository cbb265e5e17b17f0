"""A long run of the host backend while servers are killed: no sample is lost, and
memory and latency stay constant.

    bazel run --config=opt //tests/faults:long_run -- --steps 20000 --out run.json
    tests/faults/plot_long_run.py run.json docs/long_run.svg

Two servers; one process with every rank of two modules, which exchange. Every
--kill-every steps one of the servers is killed with SIGKILL and started again.
Ends with one line that sums up, and writes the measurements to --out.

Steady service, for hours and with little of the processor, with a status and a scrape
of the metrics each minute:

    bazel run --config=opt //tests/faults:long_run -- --kill-every 0 --pace 0.25 \\
        --steps 30000 --out steady.json

Its line has memory, descriptors and threads of each process: the least and the most of
each quarter of the run, the first tenth left out.
"""

import argparse
import collections
import json
import random
import shutil
import time

from tests.harness import tools

CONFIG = """
sources: [{{name: docs, format: webdataset, path: "docs-*.tar"}}]
model: {{profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 12544}}
batch: {{global: {global_batch}, micro: {global_batch}, max_tokens: 8192}}
topology:
  modules: {{vision: {{dp: 2}}, language: {{dp: 2}}}}
  servers:
    - {{address: "{first}", ranks: {{vision: "0-1"}}}}
    - {{address: "{second}", ranks: {{language: "0-1"}}}}
serve: {{threads: 1, memory: 64MiB, prefetch_steps: 4}}
"""
GLOBAL = 2
SAMPLES = 48
RANKS = 4
FLAGS = ["--hang-after", "3", "--give-up-after", "100"]


class Watched(tools.Rank):
    """Keeps counts and latencies instead of batches."""

    def __init__(self, *arguments, **options):
        self.samples = collections.Counter()  # of each module, by name
        self.batches_seen = 0
        self.placeholders = 0
        self.next_ms = 0.0  # the longest since the last query
        super().__init__(*arguments, **options)

    def on_batch(self, batch):
        step = self.batches_seen // RANKS
        if batch["step"] != step:
            raise AssertionError(f"step {batch['step']} came, wanted {step}")
        self.batches_seen += 1
        self.samples.update((batch["module"], name) for name in batch["samples"])
        self.placeholders += batch["placeholders"]
        self.next_ms = max(self.next_ms, batch["next_ms"])


def parse(arguments=None):
    parser = argparse.ArgumentParser(prog="long_run")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--kill-every", type=int, default=250, help="0: never")
    parser.add_argument("--pace", type=float, default=0, help="seconds a step, at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out")
    return parser.parse_args(arguments)


def run(folder, options):
    addresses = [f"unix:{folder}/{name}.sock" for name in "ab"]
    text = CONFIG.format(global_batch=GLOBAL, first=addresses[0], second=addresses[1])
    config = tools.set_up(folder, text, SAMPLES, "--preset", "receipts")
    log = f"{folder}/log"
    servers = [tools.Server(config, address, log=log).up() for address in addresses]
    rank = Watched(addresses, "--steps", options.steps, *FLAGS, log=log)
    choose = random.Random(options.seed)
    seen = []
    kills = 0
    awaited = None  # a killed server that is starting again
    begin = time.monotonic()
    for step in range(options.steps):
        if options.kill_every and step % options.kill_every == options.kill_every // 2:
            if awaited:
                awaited.await_ready()
            awaited = choose.choice(servers)
            awaited.kill()
            awaited.start()
            kills += 1
            killed = True
        else:
            killed = False
        before = time.monotonic()
        rank.advance(RANKS)
        seen.append({
            "step": step,
            "seconds": round(before - begin, 3),
            "next_ms": round(rank.next_ms, 3),
            "kill": killed,
        })  # fmt: skip
        rank.next_ms = 0.0
        if step % 50 == 0:
            seen[-1]["rank"] = tools.resources(rank.process)
            seen[-1]["servers"] = [tools.resources(s.process) for s in servers]
        if options.pace and step % max(int(60 / options.pace), 1) == 0:
            for address in addresses:
                for query in ("status", "metrics"):
                    tools.ok("ballastctl", "--server", address, query)
        pause = begin + (step + 1) * options.pace - time.monotonic()
        if options.pace and pause > 0:
            time.sleep(pause)
    rank.advance(1)
    assert rank.ended, "more batches than steps"
    if awaited:
        awaited.await_ready()
    for server in servers:
        server.drain()
    return rank, seen, kills


def quarters(seen):
    """For each process and resource, [least, most] of each quarter."""
    rows = [s for s in seen if "rank" in s]
    rows = rows[len(rows) // 10 :]
    size = max(len(rows) // 4, 1)
    table = {}
    for name, of in (
        ("rank", lambda row: row["rank"]),
        ("first server", lambda row: row["servers"][0]),
        ("second server", lambda row: row["servers"][1]),
    ):
        table[name] = {
            what: [
                [round(min(v), 1), round(max(v), 1)]
                for v in (
                    [of(row)[what] for row in rows[q * size : (q + 1) * size]] for q in range(4)
                )
                if v
            ]
            for what in ("mib", "descriptors", "threads")
        }
    return table


def check(rank, steps):
    """Each epoch contains every sample once, so the counts show samples that were
    lost or came twice."""
    for module in ("vision", "language"):
        counts = {n: c for (m, n), c in rank.samples.items() if m == module}
        total = steps * GLOBAL
        assert sum(counts.values()) == total, f"{module}: {counts}"
        epochs = total // SAMPLES
        assert len(counts) == min(SAMPLES, total), f"{module}: {counts}"
        wrong = {n: c for n, c in counts.items() if not epochs <= c <= epochs + 1}
        assert not wrong, f"{module}: {wrong}, wanted {epochs} or {epochs + 1}"
    assert rank.placeholders == 0, f"{rank.placeholders} placeholders"


def main(arguments=None):
    options = parse(arguments)
    begin = time.monotonic()
    with tools.job_folder() as folder:
        try:
            rank, seen, kills = run(folder, options)
            check(rank, options.steps)
        finally:
            if options.out:
                shutil.copy(f"{folder}/log", options.out + ".log")
    took = sorted(s["next_ms"] for s in seen)
    memory = [s["rank"]["mib"] for s in seen if "rank" in s]
    summary = {
        "steps": options.steps,
        "batches": rank.batches_seen,
        "samples": options.steps * GLOBAL,
        "kills": kills,
        "seconds": round(time.monotonic() - begin, 1),
        "next_ms": {
            "median": took[len(took) // 2],
            "p99": took[len(took) * 99 // 100],
            "longest": took[-1],
        },
        "rank_mib": {
            "after_a_tenth": round(memory[len(memory) // 10], 1),
            "at_the_end": round(memory[-1], 1),
        },
        "resources": quarters(seen),
    }
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"summary": summary, "steps": seen}, file)
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
