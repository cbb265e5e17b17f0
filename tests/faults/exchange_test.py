"""Ranks that exchange over Gloo, each a process, while ranks and servers are killed
and stopped: each rank ends in bounded time, with the cause, and no batch is wrong.

    bazel test //tests/faults:exchange_test
    bazel run //tests/faults:exchange_test -- --runs 100 --seed 7

Each run draws one fault, when it comes, and whom it hits. Ends with a line for each
kind: runs, how ranks ended, and the longest time from the fault to the last end.
"""

import argparse
import collections
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from tests.faults import cluster
from tests.integration.command_line import tools

CONFIG = """
sources: [{{name: docs, format: webdataset, path: "docs-*.tar"}}]
model: {{profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 12544}}
batch: {{global: 8, micro: 4, max_tokens: 8192}}
topology:
  modules: {{vision: {{dp: 2}}, language: {{dp: 2}}}}
  servers:
    - {{address: "{a}", ranks: {{vision: "0-1"}}}}
    - {{address: "{b}", ranks: {{language: "0-1"}}}}
serve: {{threads: 1, memory: 64MiB, prefetch_steps: 2}}
"""
SAMPLES = 48
STEPS = 24
MODULES = ("vision", "language")
PATIENCE_S = 12
# One block at a time, so that ranks need servers and one another in each batch. An
# exchange waits for twice --give-up-after.
FLAGS = ("--max-bytes", 1, "--hang-after", 2, "--give-up-after", PATIENCE_S)
# Of a rank: the exchange's bound, and what a busy machine needs besides.
BOUND_S = 2 * PATIENCE_S + 90

# What happens, and whether every rank still does all its steps.
KINDS = {
    "kill a rank": False,
    "stop a rank for good": False,
    "stop a rank for a second": True,
    "kill a server": True,
    "stop a server for good": True,
    "kill both servers": False,
    "stop both servers for good": False,
}


_progress = threading.Condition()  # a line or an end of any rank


class Rank:
    """A rank's process, whose lines a thread takes."""

    def __init__(self, module, number, servers, run, folder):
        self.module = module
        self.number = number
        self.batches = []
        self.status = None
        self.victim = False
        self.ended_at = None
        self._error = f"{folder}/{run}.{module}.{number}.log"
        with open(self._error, "wb") as log:
            self.process = subprocess.Popen(
                [tools.program("ballast-rank"), "--server", ",".join(servers), "--json",
                 "--world", "one", "--module", module, "--dp-rank", str(number),
                 "--run", run, "--steps", str(STEPS), *map(str, FLAGS)],
                stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self):
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break  # killed in the middle of it
            with _progress:
                self.batches.append(tools.without_ms(json.loads(line)))
                _progress.notify_all()
        status = self.process.wait()
        with _progress:
            self.status = status
            self.ended_at = time.monotonic()
            _progress.notify_all()
        self.process.stdout.close()

    def join(self, seconds):
        """Returns whether the process has ended."""
        self._thread.join(max(seconds, 0))
        return not self._thread.is_alive()

    def error(self):
        with open(self._error, encoding="utf-8", errors="replace") as log:
            return log.read()


class Job:
    def __init__(self, folder, log):
        self.folder = folder
        self.log = log
        self.addresses = [f"unix:{folder}/{name}.sock" for name in "ab"]
        self.config = f"{folder}/job.yaml"
        self.runs = 0
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(a=self.addresses[0], b=self.addresses[1]))
        for command in (
            ["make-corpus", "--out", folder, "--samples", SAMPLES, "--preset", "receipts"],
            ["index", "--config", self.config],
        ):
            done = tools.run("ballast-server", *command)
            assert done.returncode == 0, done.stderr.decode()

    def start(self):
        servers = [cluster.Server(self.config, a, self.log) for a in self.addresses]
        self.runs += 1
        ranks = []
        for n, (module, number) in enumerate((m, r) for m in MODULES for r in range(2)):
            order = self.addresses[n % 2:] + self.addresses[: n % 2]
            ranks.append(Rank(module, number, order, f"run{self.runs}", self.folder))
        return servers, ranks

    def undisturbed(self):
        servers, ranks = self.start()
        for rank in ranks:
            assert rank.join(BOUND_S) and rank.status == 0, rank.error()
        for server in servers:
            server.drain()
        return {(r.module, r.number): r.batches for r in ranks}


def inject(kind, choose, servers, ranks):
    """Returns the servers that are stopped."""
    victim = choose.choice(ranks)
    server = choose.choice(servers)
    if kind == "kill a rank":
        victim.victim = True
        victim.process.kill()
    elif kind == "stop a rank for good":
        victim.victim = True
        victim.process.send_signal(signal.SIGSTOP)
    elif kind == "stop a rank for a second":
        victim.process.send_signal(signal.SIGSTOP)
        threading.Timer(1, victim.process.send_signal, [signal.SIGCONT]).start()
    elif kind == "kill a server":
        server.kill()
    elif kind == "stop a server for good":
        server.hang()
        return [server]
    elif kind == "kill both servers":
        for each in servers:
            each.kill()
    else:
        for each in servers:
            each.hang()
        return servers
    return []


def check(kind, ranks, wanted):
    """What is wrong, a line each."""
    for rank in ranks:
        name = f"{kind}: {rank.module} rank {rank.number}"
        whole = wanted[rank.module, rank.number]
        if rank.batches != whole[: len(rank.batches)]:
            yield f"{name} got other batches"
        if rank.victim:
            continue
        peer = next(p for p in ranks if p.module == rank.module and p is not rank)
        if KINDS[kind] or (not peer.victim and "rank" in kind):
            # Modules exchange apart from one another.
            if rank.status != 0 or len(rank.batches) != len(whole):
                yield (f"{name} ended with {rank.status} after {len(rank.batches)} of "
                       f"{len(whole)} batches: {rank.error()[-600:]}")  # fmt: skip
        elif rank.status == 0:
            if len(rank.batches) != len(whole):
                yield f"{name} said that all is well after {len(rank.batches)} batches"
        else:
            error = rank.error()
            # Of a peer that ended first, an error says that its own has the cause.
            causes = [f"rank {peer.number}"] + (["server"] if "server" in kind else [])
            if not any(cause in error for cause in causes):
                yield f"{name} does not name the cause, {causes}: {error[-600:]}"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="exchange_test")
    parser.add_argument("--runs", type=int, default=len(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    choose = random.Random(options.seed)
    folder = tempfile.mkdtemp(prefix="ballast", dir="/tmp")
    runs = collections.Counter()
    ends = collections.defaultdict(collections.Counter)
    longest = collections.defaultdict(float)
    batches = 0
    problems = []
    try:
        with open(f"{folder}/log", "wb") as log:
            job = Job(folder, log)
            wanted = job.undisturbed()
            for number in range(options.runs):
                kind = list(KINDS)[number % len(KINDS)]
                servers, ranks = job.start()
                # Some batch of some rank, once all have met: before that a rank waits
                # as long for the others as a job may need to start.
                watched, at = choose.choice(ranks), choose.randrange(2 * STEPS)
                with _progress:
                    _progress.wait_for(lambda: all(
                        len(rank.batches) >= (at if rank is watched else 1)
                        or rank.status is not None
                        for rank in ranks
                    ), BOUND_S)  # fmt: skip
                begin = time.monotonic()
                stopped = inject(kind, choose, servers, ranks)
                for rank in ranks:
                    if rank.victim and "stop" in kind:
                        continue
                    if not rank.join(begin + BOUND_S - time.monotonic()):
                        problems.append(f"{kind}: {rank.module} rank {rank.number} has "
                                        f"not ended after {BOUND_S} s")  # fmt: skip
                        rank.process.kill()
                        rank.join(BOUND_S)
                    longest[kind] = max(longest[kind], rank.ended_at - begin)
                for rank in ranks:
                    if rank.victim:
                        rank.process.kill()
                        rank.join(BOUND_S)
                    else:
                        ends[kind]["whole" if rank.status == 0 else "with the cause"] += 1
                    batches += len(rank.batches)
                for server in servers:
                    if server in stopped:
                        server.wake()
                    server.kill()
                problems += check(kind, ranks, wanted)
                runs[kind] += 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for kind, count in runs.items():
        print(f"{kind}: {count} runs, ranks ended {dict(ends[kind])}, "
              f"the last {longest[kind]:.1f} s after the fault")  # fmt: skip
    print(f"{sum(runs.values())} runs, {batches} batches compared, {len(problems)} problems")
    if problems:
        sys.exit("\n".join(problems[:20]))


if __name__ == "__main__":
    main(sys.argv[1:])
