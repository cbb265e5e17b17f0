"""Two releases side by side: which servers serve which ranks, what is refused, and
with which words (docs/upgrading.md).

    python3 tests/faults/upgrade.py --old DIR --new DIR

Each folder holds ballast-server and ballast-rank of one build. Ends with a line for
each pair, and status 1 if a batch differs from those of the old release alone, or its
digest from that of the same ranks with other servers. Digests of two releases of ranks
may differ: they cover what a release calls a batch.
"""

import argparse
import contextlib
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
STEPS = 6
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

    @contextlib.contextmanager
    def servers(self, *releases):
        """One server of each release, or what a release said instead."""
        processes = []
        refusal = None
        for number, (release, index) in enumerate(releases):
            process = subprocess.Popen(
                [os.path.join(self.releases[release], "ballast-server"), "serve",
                 "--config", self.config(index),
                 "--listen", f"unix:{self.folder}/{number}.sock"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            processes.append(process)
            if not process.stdout.readline().startswith("ready"):
                refusal = process.stderr.read().strip().splitlines()[-1]
        try:
            yield refusal
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=60)

    def ranks(self, release, order):
        """The batches of all ranks, or None and the error."""
        servers = ",".join(f"unix:{self.folder}/{n}.sock" for n in order)
        status, out, error = self.run(
            release, "ballast-rank", "--server", servers, "--steps", STEPS, "--json",
            "--give-up-after", 10,
        )  # fmt: skip
        batches = [json.loads(line) for line in out.splitlines()]
        for batch in batches:
            batch.pop("next_ms")
        return batches, "" if status == 0 else error.strip().splitlines()[-1]


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
        with job.servers(("old", "old"), ("old", "old")):
            wanted, error = job.ranks("old", (0, 1))
            assert not error, error
        print(f"old alone: {len(wanted)} batches")
        digests = {"old": [batch.pop("digest") for batch in wanted]}
        for release, index in itertools.product(RELEASES, RELEASES):
            if release == index:
                continue
            with job.servers((release, index)) as refusal:
                print(f"{release} server, {index} index: {refusal or 'served'}")
        for servers in itertools.product(RELEASES, RELEASES):
            for rank in RELEASES:
                with job.servers(*((s, s) for s in servers)) as refusal:
                    batches, error = job.ranks(rank, (0, 1))
                found = [batch.pop("digest") for batch in batches]
                digests.setdefault(rank, found)
                equal = (batches == wanted[: len(batches)]
                         and found == digests[rank][: len(found)])  # fmt: skip
                wrong += not equal
                said = refusal or error or "served to the end"
                print(f"{servers[0]} and {servers[1]} servers, {rank} ranks: "
                      f"{len(batches)} batches, {'equal' if equal else 'OTHERS'}; {said}",
                      flush=True)  # fmt: skip
    finally:
        shutil.rmtree(folder)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
