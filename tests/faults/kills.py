"""Servers and ranks are killed, and servers with changed configurations join the job: no rank
ever gets another batch than in a job without faults.

    bazel run //tests/faults:kills -- --server-kills 300 --rank-kills 100 --changes 60

Real processes. Two servers, a process with every rank, and the batches of a run without faults
to compare with, tensor by tensor (`digest`). Kills come at moments that the seed draws, each
once the job has gone on after the last. A changed configuration differs from the job's in one
or two of the keys below: its server, whose ranks know no other one, serves them nothing and
names a key that differs, whatever the delivery, since the servers compare themselves at
topology.meeting. Ends with one line that sums up.
"""

import argparse
import json
import random
import sys
import time

from tests.harness import tools

STEPS, RANKS = 40, 4
# The values of each key: the job's first. Deliveries other than `off` make the same batches.
KEYS = {
    "seed": ["5", "6", "7", "8"],
    "shuffle": ["true", "false"],
    "weight": ["3", "2", "1.5"],
    "pixels": ["12544", "25088", "50176"],
    "global": ["4", "8"],
    "tokens": ["8192", "16384"],
    "delivery": ["direct", "off"],
    "micro": ["2", "4"],
}
# The keys of the configuration that they are in, as a refusal names them.
NAMES = ("order.", "sources", "model.", "batch.", "balance.", "source", "index")
CONFIG = """
sources:
  - {{name: docs, format: webdataset, path: "docs-*.tar", weight: {weight}}}
  - {{name: more, format: webdataset, path: "docs-*.tar", weight: 1}}
model: {{profile: qwen2_5_vl, tokenizer: bytes, max_pixels: {pixels}}}
batch: {{global: {global}, micro: {micro}, max_tokens: {tokens}}}
topology:
  modules: {{vision: {{dp: 2}}, language: {{dp: 2}}}}
  meeting: "unix:{folder}/a.sock"
order: {{seed: {seed}, shuffle: {shuffle}}}
balance: {{delivery: {delivery}}}
serve: {{threads: 1, memory: 64MiB, prefetch_steps: 2}}
"""
# One block at a time, so that a rank needs a server at every batch.
FLAGS = ["--max-bytes", 1, "--hang-after", 3, "--give-up-after", 100]


def key(batch):
    return (batch["module"], batch["dp_rank"], batch["step"], batch["micro_batch"])


class Compared(tools.Rank):
    """Compares each batch with the wanted one; without `wanted`, keeps them."""

    def __init__(self, *arguments, wanted=None, **options):
        self.wanted, self.found, self.step = wanted, {}, 0
        super().__init__(*arguments, **options)

    def on_batch(self, batch):
        self.step = batch["step"]
        if self.wanted is None:
            self.found[key(batch)] = batch["digest"]
        elif self.wanted[key(batch)] != batch["digest"]:
            raise AssertionError(f"{key(batch)} is another batch")


class Job:
    def __init__(self, folder, choose):
        self.folder, self.choose, self.log = folder, choose, f"{folder}/log"
        self.text = CONFIG.format(folder=folder, **{k: v[0] for k, v in KEYS.items()})
        self.config = tools.set_up(folder, self.text, 32)
        self.servers = [self.server(self.config, name).up() for name in "ab"]
        self.batches = 0

    def server(self, config, name):
        return tools.Server(config, f"unix:{self.folder}/{name}.sock", log=self.log)

    def rank(self, servers, *flags, wanted=None):
        return Compared(
            [server.address for server in servers], *map(str, FLAGS), *map(str, flags),
            log=self.log, wanted=wanted,
        )  # fmt: skip

    def reference(self):
        rank = self.rank(self.servers, "--steps", STEPS)
        assert tools.advance([rank]) and rank.error is None, rank.error
        return rank.found

    def kill(self, server_kills, rank_kills):
        """Kills so many of both, in a drawn order."""
        wanted = self.reference()
        kinds = ["server"] * server_kills + ["rank"] * rank_kills
        self.choose.shuffle(kinds)
        rank, awaited = self.rank(self.servers, "--steps", STEPS, wanted=wanted), None
        for kind in kinds:
            rank.advance(self.choose.randint(1, 2 * RANKS))
            if kind == "server":
                if awaited:
                    awaited.await_ready()
                awaited = self.choose.choice(self.servers)
                awaited.kill()
                awaited.start()
            if kind == "rank" or rank.ended:
                self.batches += rank.taken
                rank.kill()
                first = rank.step if rank.step + 2 < STEPS else 0
                rank = self.rank(
                    self.servers, "--step", first, "--steps", STEPS - first, wanted=wanted
                )
        assert tools.advance([rank]) and rank.error is None, rank.error
        self.batches += rank.taken
        if awaited:
            awaited.await_ready()

    def changes(self, count):
        """So many servers with a changed configuration, one after the other; returns the keys
        that refusals named."""
        named = set()
        for number in range(count):
            values = {k: v[0] for k, v in KEYS.items()}
            for changed in self.choose.sample(sorted(KEYS), self.choose.randint(1, 2)):
                values[changed] = self.choose.choice(KEYS[changed][1:])
            config = tools.write(
                f"{self.folder}/changed.yaml", CONFIG.format(folder=self.folder, **values)
            )
            tools.ok("ballast-server", "index", "--config", config)
            server = self.server(config, "c").up()
            rank = self.rank([server], "--steps", 2)
            assert tools.advance([rank]), "a rank of another job waits without an end"
            server.kill()
            with open(self.log, encoding="utf-8", errors="replace") as log:
                said = log.read()
            assert rank.taken == 0 and rank.status != 0, f"change {number}, {values}: served"
            _, found, rest = said.rpartition("first differing key: ")
            assert found and rest.startswith(NAMES), f"change {number}, {values}: {said[-2000:]}"
            named.add(rest.split()[0])
            with open(self.log, "w", encoding="utf-8"):
                pass  # the next one's are read alone
        return sorted(named)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="kills")
    parser.add_argument("--server-kills", type=int, default=6)
    parser.add_argument("--rank-kills", type=int, default=3)
    parser.add_argument("--changes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    with tools.job_folder() as folder:
        job = Job(folder, random.Random(options.seed))
        try:
            job.kill(options.server_kills, options.rank_kills)
            named = job.changes(options.changes)
        finally:
            for server in job.servers:
                server.kill()
    print(json.dumps({
        "server_kills": options.server_kills,
        "rank_kills": options.rank_kills,
        "batches_compared": job.batches,
        "changes_refused": options.changes,
        "keys_named": named,
        "seconds": round(time.monotonic() - begin, 1),
    }))  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
