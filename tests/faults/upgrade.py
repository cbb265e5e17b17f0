"""Two releases side by side: which servers serve which ranks, what is refused, and
with which words (docs/upgrading.md).

    python3 tests/faults/upgrade.py --old DIR --new DIR

Each folder holds ballast-server and ballast-rank of one build. Ends with a line for
each pair, and for each job whose servers are replaced one after the other under its
ranks. Status 1 if a batch differs from those of the old release alone, or its digest
from that of the same ranks with other servers, or if ranks of a job whose servers are
replaced do not reach the end. Digests of two releases of ranks may differ: they cover
what a release calls a batch.
"""

import argparse
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

CONFIG = """
sources: [{{name: docs, format: webdataset, path: "docs-*.tar", index: {index}}}]
model: {{profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 12544}}
batch: {{global: 8, micro: 4, max_tokens: 8192}}
topology:
  modules: {{vision: {{dp: 2}}, language: {{dp: 2}}}}
  servers:
    - {{address: "unix:{folder}/0.sock", ranks: {{vision: "0-1"}}}}
    - {{address: "unix:{folder}/1.sock", ranks: {{language: "0-1"}}}}
serve: {{threads: 1, memory: 64MiB, prefetch_steps: 2}}
"""
STEPS = 24
BATCHES_OF_A_STEP = 8  # 2 micro-batches for each of 4 ranks
RELEASES = ("old", "new")


class Job:
    def __init__(self, folder, releases):
        self.folder = folder
        self.releases = releases
        for name in RELEASES:
            with open(self.config(name), "w", encoding="utf-8") as file:
                file.write(CONFIG.format(folder=folder, index=name + ".index"))

    def config(self, index):
        return f"{self.folder}/{index}.yaml"

    def run(self, release, program, *arguments):
        done = subprocess.run(
            [os.path.join(self.releases[release], program), *map(str, arguments)],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def serve(self, number, release, index):
        """Server `number` of the job, ready, or what it said instead."""
        process = subprocess.Popen(
            [os.path.join(self.releases[release], "ballast-server"), "serve",
             "--config", self.config(index), "--listen", f"unix:{self.folder}/{number}.sock"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if process.stdout.readline().startswith("ready"):
            return process, None
        return process, process.stderr.read().strip().splitlines()[-1]

    @contextlib.contextmanager
    def servers(self, *releases):
        """Servers of these releases with these indexes, and what one said instead."""
        started = [self.serve(number, *each) for number, each in enumerate(releases)]
        processes = [process for process, _ in started]
        refusals = [refusal for _, refusal in started if refusal]
        try:
            yield processes, refusals[-1] if refusals else None
        finally:
            for process in processes:
                drain(process)

    def start_ranks(self, release):
        """All ranks. Their output is a pipe of one page: they are a few batches ahead of
        who reads it, and no more."""
        process = subprocess.Popen(
            [os.path.join(self.releases[release], "ballast-rank"),
             "--server", f"unix:{self.folder}/0.sock,unix:{self.folder}/1.sock",
             "--steps", str(STEPS), "--json", "--give-up-after", "10"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        return process

    def ranks(self, release, upgrades=()):
        """The batches of all ranks, and the error of those that did not reach the end.

        `upgrades`: functions that are called while the ranks run, after as many steps
        each.
        """
        process = self.start_ranks(release)
        every = STEPS // (len(upgrades) + 1) * BATCHES_OF_A_STEP
        batches = []
        for line in process.stdout:
            batches.append(json.loads(line))
            batches[-1].pop("next_ms")
            count, rest = divmod(len(batches), every)
            if rest == 0 and count <= len(upgrades):
                upgrades[count - 1]()
        error = process.stderr.read()
        return batches, "" if process.wait() == 0 else error.strip().splitlines()[-1]

    def rolling(self, old, new, rank):
        """The batches of ranks under whose servers `new` takes the place of `old`, and
        the error."""
        with self.servers((old, old), (old, old)) as (processes, refusal):
            assert not refusal, refusal
            refusals = []

            def replace(number):
                drain(processes[number])
                processes[number], refused = self.serve(number, new, new)
                refusals.append(refused)

            batches, error = self.ranks(rank, [lambda: replace(0), lambda: replace(1)])
            said = [refused for refused in refusals if refused]
            return batches, error or (said[-1] if said else "")


def drain(process):
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)


def main():
    parser = argparse.ArgumentParser(prog="upgrade")
    for name in RELEASES:
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="ballast", dir="/tmp")
    wrong = 0
    try:
        job = Job(folder, {"old": options.old, "new": options.new})
        for name in RELEASES:
            print(name + ":", job.run(name, "ballast-server", "--version")[1].split("\n")[0:2])
        assert job.run("old", "ballast-server", "make-corpus", "--out", folder,
                       "--samples", 48, "--preset", "receipts")[0] == 0  # fmt: skip
        for name in RELEASES:
            status, _, error = job.run(name, "ballast-server", "index", "--config",
                                       job.config(name))  # fmt: skip
            assert status == 0, error
        with job.servers(("old", "old"), ("old", "old")) as (_, refusal):
            assert not refusal, refusal
            wanted, error = job.ranks("old")
            assert not error, error
        assert len(wanted) == STEPS * BATCHES_OF_A_STEP, len(wanted)
        print(f"old alone: {len(wanted)} batches")
        digests = {"old": [batch.pop("digest") for batch in wanted]}

        def differ(rank, batches):
            found = [batch.pop("digest") for batch in batches]
            digests.setdefault(rank, found)
            return batches != wanted[: len(batches)] or found != digests[rank][: len(found)]

        def report(what, different, batches, said):
            print(f"{what}: {len(batches)} batches, {'OTHERS' if different else 'equal'}; "
                  f"{said or 'served to the end'}", flush=True)  # fmt: skip

        for release, index in itertools.permutations(RELEASES, 2):
            with job.servers((release, index)) as (_, refusal):
                print(f"{release} server, {index} index: {refusal or 'served'}")
        for servers in itertools.product(RELEASES, RELEASES):
            for rank in RELEASES:
                with job.servers(*((s, s) for s in servers)) as (_, refusal):
                    batches, error = job.ranks(rank)
                different = differ(rank, batches)
                wrong += different
                report(f"{servers[0]} and {servers[1]} servers, {rank} ranks", different,
                       batches, refusal or error)  # fmt: skip
        for old, new in itertools.permutations(RELEASES, 2):
            for rank in RELEASES:
                batches, said = job.rolling(old, new, rank)
                different = differ(rank, batches)
                wrong += different or len(batches) != len(wanted) or bool(said)
                report(f"{new} servers in place of {old} ones, under {rank} ranks", different,
                       batches, said)  # fmt: skip
    finally:
        shutil.rmtree(folder)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
