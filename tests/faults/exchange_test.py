"""Ranks that exchange over Gloo, each a process, while ranks and servers are killed
and stopped: each rank ends in bounded time, with the cause, and no batch is wrong.

    bazel test //tests/faults:exchange_test
    bazel run //tests/faults:exchange_test -- --runs 100 --seed 7

Each run draws one fault, when it comes, and whom it hits. Ends with a line for each
kind: runs, how ranks ended, and the longest time from the fault to the last end.
"""

import argparse
import collections
import random
import signal
import sys
import threading
import time

from tests.harness import tools

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


class Rank(tools.Rank):
    def __init__(self, module, number, servers, run, folder):
        self.module = module
        self.number = number
        self.victim = False
        super().__init__(
            servers, "--world", "one", "--module", module, "--dp-rank", number, "--run", run,
            "--steps", STEPS, *FLAGS, log=f"{folder}/{run}.{module}.{number}.log",
        )  # fmt: skip


class Job:
    def __init__(self, folder):
        self.folder = folder
        self.addresses = [f"unix:{folder}/{name}.sock" for name in "ab"]
        text = CONFIG.format(a=self.addresses[0], b=self.addresses[1])
        self.config = tools.set_up(folder, text, SAMPLES, "--preset", "receipts")
        self.runs = 0

    def start(self):
        log = f"{self.folder}/log"
        servers = [tools.Server(self.config, a, log=log).up() for a in self.addresses]
        self.runs += 1
        ranks = []
        for n, (module, number) in enumerate((m, r) for m in MODULES for r in range(2)):
            order = self.addresses[n % 2 :] + self.addresses[: n % 2]
            ranks.append(Rank(module, number, order, f"run{self.runs}", self.folder))
        return servers, ranks

    def undisturbed(self):
        servers, ranks = self.start()
        tools.advance(ranks, seconds=BOUND_S)
        for rank in ranks:
            assert rank.status == 0, rank.said()
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
                       f"{len(whole)} batches: {rank.said()[-600:]}")  # fmt: skip
        elif rank.status == 0:
            if len(rank.batches) != len(whole):
                yield f"{name} said that all is well after {len(rank.batches)} batches"
        else:
            error = rank.said()
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
    runs = collections.Counter()
    ends = collections.defaultdict(collections.Counter)
    longest = collections.defaultdict(float)
    batches = 0
    problems = []
    with tools.job_folder() as folder:
        job = Job(folder)
        wanted = job.undisturbed()
        for number in range(options.runs):
            kind = list(KINDS)[number % len(KINDS)]
            servers, ranks = job.start()
            # At least one batch of each rank: before all have met a rank waits as long for
            # the others as a job may need to start. At most half of them: ranks are ahead of
            # the lines that were taken.
            tools.advance(ranks, choose.randrange(1, STEPS), BOUND_S)
            begin = time.monotonic()
            stopped = inject(kind, choose, servers, ranks)
            ending = [rank for rank in ranks if not (rank.victim and "stop" in kind)]
            tools.advance(ending, seconds=BOUND_S)
            for rank in ending:
                if not rank.ended:
                    problems.append(f"{kind}: {rank.module} rank {rank.number} has "
                                    f"not ended after {BOUND_S} s")  # fmt: skip
                    rank.kill()
                longest[kind] = max(longest[kind], rank.ended_at - begin)
            for rank in ranks:
                if rank.victim:
                    rank.kill()
                else:
                    ends[kind]["whole" if rank.status == 0 else "with the cause"] += 1
                batches += len(rank.batches)
            for server in servers:
                if server in stopped:
                    server.wake()
                server.kill()
            problems += check(kind, ranks, wanted)
            runs[kind] += 1
    for kind, count in runs.items():
        print(f"{kind}: {count} runs, ranks ended {dict(ends[kind])}, "
              f"the last {longest[kind]:.1f} s after the fault")  # fmt: skip
    print(f"{sum(runs.values())} runs, {batches} batches compared, {len(problems)} problems")
    if problems:
        sys.exit("\n".join(problems[:20]))


if __name__ == "__main__":
    main(sys.argv[1:])
