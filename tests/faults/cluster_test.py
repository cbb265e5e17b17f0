"""Servers and ranks die at random moments, and no rank's samples change.

    bazel test //tests/faults:cluster_test
    bazel run //tests/faults:cluster_test -- --kills 200 --seed 7

Ends with one line that sums up the faults; a seed repeats the same decisions.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time

from tests.faults import cluster
from tests.integration.command_line import tools

# Small images keep unoptimised builds quick; two micro-batches a step leave room
# to die within one.
CONFIG = """
sources: [{{name: docs, format: webdataset, path: "docs-*.tar"}}]
model: {{profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 12544}}
batch: {{global: 8, micro: 4, max_tokens: 8192}}
topology:
  modules: {{vision: {{dp: 2}}, language: {{dp: 2}}}}
  servers:
{servers}
balance: {{delivery: {delivery}}}
serve: {{threads: 2, memory: 64MiB, prefetch_steps: 2}}
"""
SERVERS = 3
SAMPLES = 48
MICRO_BATCHES = 2
# Allows one block at a time, so that a rank needs its server at every batch.
# Gives up a hung server after three seconds instead of thirty.
FLAGS = ["--max-bytes", "1", "--hang-after", "3", "--give-up-after", "100"]


def parse(arguments):
    parser = argparse.ArgumentParser(prog="cluster_test")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=20260131)
    parser.add_argument(
        "--faults", default="kill,hang,drain,rank",
        help="what happens: kill (-9 a server), hang (SIGSTOP), drain (SIGTERM), "
        "rank (kill -9 a rank)",
    )  # fmt: skip
    return parser.parse_args(arguments)


class Job:
    def __init__(self, folder, delivery, seed, log):
        self.random = random.Random(seed)
        self.log = log
        self.folder = folder
        self.delivery = delivery
        self.addresses = [f"unix:{folder}/{delivery}{s}.sock" for s in range(SERVERS)]
        shares = ['{vision: "0", language: "0"}', '{vision: "1"}', '{language: "1"}']
        self.config = f"{folder}/{delivery}.yaml"
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(
                delivery=delivery,
                servers="\n".join(
                    f'    - {{address: "{a}", ranks: {s}}}'
                    for a, s in zip(self.addresses, shares)
                ),
            ))  # fmt: skip
        done = tools.run("ballast-server", "index", "--config", self.config)
        if done.returncode != 0:
            raise AssertionError(done.stderr.decode())

    def ranks(self, steps):
        """Starts one process per rank; with the exchange, one for all ranks."""
        roles = [("all", 0)]
        if self.delivery != "exchange":
            roles = [(m, r) for m in ("vision", "language") for r in range(2)]
        ranks = []
        for number, role in enumerate(roles):
            # Each rank prefers another server, as ranks of several nodes do.
            first = number % SERVERS
            order = self.addresses[first:] + self.addresses[:first]
            ranks.append(cluster.Rank(role, order, steps, self.log, FLAGS))
        return ranks

    def start_servers(self):
        return [cluster.Server(self.config, a, self.log) for a in self.addresses]

    def undisturbed(self, steps):
        servers = self.start_servers()
        batches = {}
        for rank in self.ranks(steps):
            rank.advance(10**9)
            batches.update(rank.batches)
        for server in servers:
            server.drain()
        return batches

    def disturbed(self, steps, kills, faults):
        """Runs the same job with `kills` faults, spread over the steps."""
        servers = self.start_servers()
        ranks = self.ranks(steps)
        lines_a_rank = steps * MICRO_BATCHES * (4 if self.delivery == "exchange" else 1)
        per_fault = max(1, lines_a_rank // (kills + 1))
        out = None  # the server that is away, and what brings it back
        done = {fault: 0 for fault in faults}
        for _ in range(kills):
            for rank in ranks:
                rank.advance(self.random.randint(0, 2 * per_fault))
            fault = self.random.choice(faults)
            if fault == "rank":
                victim = self.random.choice(ranks)
                victim.kill()
                victim.start(victim.checkpoint())
            else:
                if out:
                    self.bring_back(*out)
                server = self.random.choice(servers)
                getattr(server, fault)()
                out = (server, fault)
            done[fault] += 1
            # With probability one half, the server returns before anything
            # else.
            if out and self.random.random() < 0.5:
                self.bring_back(*out)
                out = None
        for rank in ranks:
            rank.advance(10**9)
        if out:
            self.bring_back(*out)
        for server in servers:
            server.drain()
        return ranks, done

    @staticmethod
    def bring_back(server, fault):
        if fault == "hang":
            server.wake()
        else:
            server.start()
            server.await_ready()


def check(delivery, expected, ranks, steps):
    got = {}
    for rank in ranks:
        for key, batch in rank.batches.items():
            assert key not in got, f"{key} came to two ranks"
            got[key] = batch
    assert got.keys() == expected.keys(), (
        f"{delivery}: missing {sorted(expected.keys() - got.keys())}, "
        f"too many {sorted(got.keys() - expected.keys())}"
    )
    for key, batch in got.items():
        assert batch == expected[key], f"{delivery}: {batch} instead of {expected[key]}"
    for module in ("vision", "language"):
        for step in range(steps):
            samples = [
                s
                for (at, _, of, _), batch in got.items()
                if at == step and of == module
                for s in batch["samples"]
            ]
            assert len(samples) == 8, f"step {step}: {samples}"


def main(arguments):
    options = parse(arguments)
    faults = options.faults.split(",")
    folder = tempfile.mkdtemp(prefix="ballast", dir="/tmp")
    log_path = f"{folder}/log"
    begin = time.monotonic()
    try:
        with open(log_path, "wb") as log:
            done = tools.run(
                "ballast-server", "make-corpus", "--out", folder, "--samples", SAMPLES
            )
            assert done.returncode == 0, done.stderr.decode()
            total = {}
            batches = repeated = restarts = 0
            shares = {"direct": options.kills - options.kills // 3,
                      "exchange": options.kills // 3}  # fmt: skip
            for delivery, kills in shares.items():
                steps = max(12, 3 * kills)
                job = Job(folder, delivery, options.seed, log)
                expected = job.undisturbed(steps)
                ranks, what = job.disturbed(steps, kills, faults)
                check(delivery, expected, ranks, steps)
                for fault, count in what.items():
                    total[fault] = total.get(fault, 0) + count
                batches += len(expected)
                repeated += sum(r.repeated for r in ranks)
                restarts += sum(r.restarts for r in ranks)
        with open(log_path, "rb") as log:
            moved = log.read().count(b"going on there")
        assert moved > 0 or set(faults) == {"rank"}, "no rank had to leave a server"
        print(
            f"{sum(total.values())} faults (seed {options.seed}):",
            ", ".join(f"{fault} {count}" for fault, count in total.items()),
            f"- ranks left a server {moved} times and began again {restarts} times;",
            f"{batches} batches byte-equal to the undisturbed run, none lost,",
            f"{repeated} trained again from a checkpoint;",
            f"{time.monotonic() - begin:.0f} s",
        )
    except BaseException:
        with open(log_path, "rb") as log:
            sys.stderr.write(log.read()[-20000:].decode(errors="replace"))
        raise
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
