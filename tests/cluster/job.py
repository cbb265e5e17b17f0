"""A job on three nodes: a server and one rank of each module on every node."""

import fcntl
import json
import os
import select
import signal
import subprocess
import time

from tests.cluster import history
from tests.cluster.nodes import SERVER_PORT
from tests.integration.command_line import tools

CONFIG = """
sources: [{{name: docs, format: webdataset, path: "{data}/docs-*.tar"}}]
model: {{profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 12544}}
batch: {{global: 12, micro: 6, max_tokens: 8192}}
topology:
  modules: {{vision: {{dp: 3}}, language: {{dp: 3}}}}
  servers:
{servers}
balance: {{delivery: {delivery}}}
security: {{insecure: true}}
serve: {{threads: {threads}, memory: 32MiB, prefetch_steps: {prefetch}, arena: "{folder}"}}
"""
MICRO_BATCHES = 2
MODULES = ("vision", "language")
TIMEOUT_S = 120
# Allows one block at a time, so that ranks need their servers; gives up what is
# silent after three seconds instead of thirty.
FLAGS = ("--max-bytes", 1, "--hang-after", 3, "--give-up-after", 30)
_F_SETPIPE_SZ = 1031
_PAGE = 4096


class Server:
    """The loader server of one node, with a library that makes its reads fail."""

    def __init__(self, node, folder, library, log):
        self.node = node
        self.config = f"{folder}/{node.name}.yaml"
        self._fault = f"{folder}/{node.name}.fault"
        self._library = library
        self._log = log
        self._process = None
        with open(self._fault, "w", encoding="ascii") as file:
            file.write(".")

    @property
    def addresses(self):
        return [f"unix:{self.node.folder}/a.sock", f"{self.node.ip}:{SERVER_PORT}"]

    def read_fault(self, byte):
        """How reads fail from now on (faulty_reads.cc); "." ends it."""
        # In place: the server has the file mapped.
        with open(self._fault, "r+", encoding="ascii") as file:
            file.write(byte)

    def start(self):
        environment = dict(
            os.environ, LD_PRELOAD=self._library, BALLAST_READ_FAULT=self._fault
        )
        listen = [flag for a in self.addresses for flag in ("--listen", a)]
        self._process = self.node.popen(
            [tools.program("ballast-server"), "serve", "--config", self.config, *listen],
            stdout=subprocess.PIPE, stderr=self._log, env=environment,
        )  # fmt: skip

    def await_ready(self):
        line = self._process.stdout.readline().decode()
        if not line.startswith("ready"):
            raise AssertionError(f"the server of {self.node.name} did not start: {line!r}")

    def signal(self, number):
        self._process.send_signal(number)

    def status(self):
        """The exit status of a server that has ended by itself; None if it runs."""
        return self._process.poll()

    def end(self, number):
        """Ends the process, if there is one, with a signal."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(TIMEOUT_S)
            self._process.stdout.close()
            self._process = None


def _records(lines):
    """The records of a history. The last line may be unfinished, and a rank that was
    killed may have left the beginning of a record before the next run's first one."""
    return [
        json.loads(line[line.rindex('{"run"'):]) for line in lines if line.endswith("\n")
    ]  # fmt: skip


class Rank:
    """A rank's process of one run. It is at most a page of lines ahead of those
    that were taken."""

    def __init__(self, node, module, number, run, start, steps, servers, folder):
        self.node = node
        self.module = module
        self.lines = 0
        self.error = None
        self._wanted = (steps - start) * MICRO_BATCHES
        self._stderr = f"{folder}/{run}.{module}.{number}.log"
        read, write = os.pipe()
        fcntl.fcntl(write, _F_SETPIPE_SZ, _PAGE)
        with open(self._stderr, "wb") as log:
            self.process = node.popen(
                [tools.program("ballast-rank"), "--server", ",".join(servers), "--json",
                 "--world", "one", "--module", module, "--dp-rank", number, "--run", run,
                 "--history", f"{folder}/{module}.{number}.history",
                 "--step", start, "--steps", steps - start, *FLAGS],
                stdout=write, stderr=log,
            )  # fmt: skip
        os.close(write)
        self.pipe = read

    @property
    def done(self):
        return self.pipe is None

    def take(self):
        """Reads what is there; at the end, keeps the error, if any."""
        piece = os.read(self.pipe, _PAGE)
        self.lines += piece.count(b"\n")
        if piece:
            return
        self._close()
        status = self.process.wait(TIMEOUT_S)
        if status != 0 or self.lines != self._wanted:
            with open(self._stderr, "rb") as log:
                self.error = f"status {status}: " + log.read()[-400:].decode(errors="replace")

    def _close(self):
        os.close(self.pipe)
        self.pipe = None

    def kill(self):
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        if self.pipe is not None:
            self._close()


class Job:
    """The ranks of one job, which start again from the checkpoint when one fails."""

    def __init__(self, name, nodes, servers, steps, folder):
        self.starts = {}  # run -> first step
        self.failures = []
        self._name = name
        self._nodes = nodes
        self._servers = servers
        self._steps = steps
        self._folder = folder
        self.ranks = []
        os.mkdir(folder)

    def start(self):
        """Starts all ranks at the checkpoint; those of the run before must be gone or
        be left to themselves."""
        step = self.checkpoint()
        run = f"{self._name}.{len(self.starts)}"
        self.starts[run] = step
        self.ranks = []
        if step == self._steps:
            return
        for node in self._nodes:
            own = self._servers[node.number].addresses[:1]
            others = [s.addresses[1] for s in self._servers if s.node is not node]
            for module in MODULES:
                self.ranks.append(Rank(node, module, node.number, run, step, self._steps,
                                       own + others, self._folder))  # fmt: skip

    def histories(self):
        """What each rank wrote, in order, over all runs: {(module, rank): entries}."""
        found = {}
        for node in self._nodes:
            for module in MODULES:
                own = found[module, node.number] = []
                path = f"{self._folder}/{module}.{node.number}.history"
                if os.path.exists(path):
                    with open(path, encoding="utf-8") as file:
                        own += _records(file)
        return found

    def entries(self):
        """All histories, one after the other."""
        return [entry for own in self.histories().values() for entry in own]

    def seen(self):
        """How many entries each rank has written by now."""
        return {rank: len(own) for rank, own in self.histories().items()}

    def checkpoint(self):
        """The first step that some rank of the latest run has not completed, as a
        trainer that saves after each step would find it."""
        if not self.starts:
            return 0
        run, start = list(self.starts.items())[-1]
        done = dict.fromkeys(((m, n.number) for m in MODULES for n in self._nodes), 0)
        for entry in self.entries():
            if entry["run"] == run:
                done[entry["module"], entry["dp_rank"]] += 1
        return start + min(done.values()) // MICRO_BATCHES

    def moves(self):
        """How often a rank left a server for another."""
        found = 0
        for name in os.listdir(self._folder):
            if name.endswith(".log"):
                with open(f"{self._folder}/{name}", "rb") as log:
                    found += log.read().count(b"going on there")
        return found

    def longest_next_ms(self, since):
        """The longest `next` of any rank after what it had written at `since`."""
        return max(
            (e["next_ms"] for rank, own in self.histories().items() for e in own[since[rank]:]),
            default=0.0,
        )  # fmt: skip

    def advance(self, step, seconds=TIMEOUT_S):
        """Takes lines until all ranks have done `step` steps of the job, one has
        failed, or the time is over. Returns "there", "failed" or "late"."""
        start = list(self.starts.values())[-1]
        wanted = (step - start) * MICRO_BATCHES
        deadline = time.monotonic() + seconds
        while True:
            failed = [rank for rank in self.ranks if rank.error is not None]
            if failed:
                self.failures += [rank.error for rank in failed]
                return "failed"
            behind = {r.pipe: r for r in self.ranks if not r.done and r.lines < wanted}
            if not behind:
                return "there"
            left = deadline - time.monotonic()
            ready = select.select(list(behind), [], [], max(left, 0))[0]
            if not ready:
                return "late"
            for pipe in ready:
                behind[pipe].take()

    def kill(self):
        for rank in self.ranks:
            rank.kill()


class Cluster:
    """Servers on all nodes, for one way of delivery."""

    def __init__(self, nodes, delivery, steps, folder, library, log):
        self.nodes = nodes
        self.steps = steps
        self._data = folder
        self._delivery = delivery
        self.folder = f"{folder}/{delivery}"
        os.mkdir(self.folder)
        self.servers = [Server(node, self.folder, library, log) for node in nodes]
        for server in self.servers:
            self.configure(server, threads=1, prefetch=2)
        done = tools.run("ballast-server", "index", "--config", self.servers[0].config)
        if done.returncode != 0:
            raise AssertionError(done.stderr.decode())
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.await_ready()
        self.plan = self._plan()
        self.reference = self._undisturbed()

    def configure(self, server, threads, prefetch):
        listed = "\n".join(
            f'    - {{address: "{s.addresses[1]}", ranks: {{vision: "{s.node.number}", '
            f'language: "{s.node.number}"}}}}'
            for s in self.servers
        )
        with open(server.config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(
                data=self._data, servers=listed, delivery=self._delivery, threads=threads,
                prefetch=prefetch, folder=server.node.folder,
            ))  # fmt: skip

    def _plan(self):
        done = tools.run("ballast-server", "plan", "--config", self.servers[0].config,
                         "--step", 0, "--steps", self.steps, "--json")  # fmt: skip
        if done.returncode != 0:
            raise AssertionError(done.stderr.decode())
        return [json.loads(line) for line in done.stdout.splitlines()]

    def _undisturbed(self):
        job = self.job("reference")
        job.start()
        if job.advance(self.steps) != "there":
            raise AssertionError(f"the run without faults: {job.failures}")
        for rank in job.ranks:
            while not rank.done:
                rank.take()
        entries = job.entries()
        problems = history.check(self.plan, entries, job.starts, entries)
        if problems:
            raise AssertionError("\n".join(problems))
        return entries

    def job(self, name):
        return Job(name, self.nodes, self.servers, self.steps, f"{self.folder}/{name}")

    def stop(self):
        for server in self.servers:
            server.end(signal.SIGKILL)
