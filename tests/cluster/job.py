"""A job on three nodes: a server and one rank of each module on every node."""

import json
import os

from tests.cluster import history
from tests.cluster.nodes import SERVER_PORT
from tests.harness import tools

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
# Allows one block at a time, so that ranks need their servers; gives up what is
# silent after three seconds instead of thirty.
FLAGS = ("--max-bytes", 1, "--hang-after", 3, "--give-up-after", 30)


class Server(tools.Server):
    """The loader server of one node, with a library that makes its reads fail."""

    def __init__(self, node, folder, library, log):
        self.node = node
        self.config = f"{folder}/{node.name}.yaml"
        self.near = f"unix:{node.folder}/a.sock"
        self.far = f"{node.ip}:{SERVER_PORT}"
        self._fault = tools.write(f"{folder}/{node.name}.fault", ".")
        faulty = dict(os.environ, LD_PRELOAD=library, BALLAST_READ_FAULT=self._fault)
        super().__init__(self.config, self.near, self.far, log=log, popen=node.popen, env=faulty)

    def read_fault(self, byte):
        """How reads fail from now on (faulty_reads.cc); "." ends it."""
        # In place: the server has the file mapped.
        with open(self._fault, "r+", encoding="ascii") as file:
            file.write(byte)


def _records(lines):
    """The records of a history. The last line may be unfinished, and a rank that was
    killed may have left the beginning of a record before the next run's first one."""
    return [
        json.loads(line[line.rindex('{"run"'):]) for line in lines if line.endswith("\n")
    ]  # fmt: skip


class Rank(tools.Rank):
    """A rank's process of one run."""

    def __init__(self, node, module, run, start, steps, servers, folder):
        self.node = node
        self.module = module
        self._wanted = (steps - start) * MICRO_BATCHES
        super().__init__(
            servers, "--world", "one", "--module", module, "--dp-rank", node.number,
            "--run", run, "--history", f"{folder}/{module}.{node.number}.history",
            "--step", start, "--steps", steps - start, *FLAGS,
            log=f"{folder}/{run}.{module}.{node.number}.log", popen=node.popen,
        )  # fmt: skip

    @property
    def error(self):
        if self.status is None or (self.status == 0 and self.taken == self._wanted):
            return None
        return f"status {self.status}: " + self.said()[-400:]


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
            others = [s.far for s in self._servers if s.node is not node]
            servers = [self._servers[node.number].near, *others]
            for module in MODULES:
                self.ranks.append(Rank(node, module, run, step, self._steps, servers, self._folder))

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

    def advance(self, step, seconds=tools.TIMEOUT_S):
        """Takes lines until all ranks have done `step` steps of the job, one has
        failed, or the time is over. Returns "there", "failed" or "late"."""
        start = list(self.starts.values())[-1]
        lines = (step - start) * MICRO_BATCHES
        in_time = tools.advance(self.ranks, lines, seconds, until_error=True)
        failed = [rank.error for rank in self.ranks if rank.error is not None]
        self.failures += failed
        return "failed" if failed else "there" if in_time else "late"

    def kill(self):
        for rank in self.ranks:
            rank.kill()


class Cluster:
    """Servers on all nodes, for one way of delivery."""

    def __init__(self, nodes, delivery, steps, folder, library):
        self.nodes = nodes
        self.steps = steps
        self._data = folder
        self._delivery = delivery
        self.folder = f"{folder}/{delivery}"
        os.mkdir(self.folder)
        log = f"{folder}/log"
        self.servers = [Server(node, self.folder, library, log) for node in nodes]
        for server in self.servers:
            self.configure(server, threads=1, prefetch=2)
        tools.ok("ballast-server", "index", "--config", self.servers[0].config)
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.await_ready()
        self.plan = tools.json_lines(
            "ballast-server", "plan", "--config", self.servers[0].config, "--step", 0,
            "--steps", self.steps, "--json",
        )  # fmt: skip
        self.reference = self._undisturbed()

    def configure(self, server, threads, prefetch):
        listed = "\n".join(
            f'    - {{address: "{s.far}", ranks: {{vision: "{s.node.number}", '
            f'language: "{s.node.number}"}}}}'
            for s in self.servers
        )
        tools.write(server.config, CONFIG.format(
            data=self._data, servers=listed, delivery=self._delivery, threads=threads,
            prefetch=prefetch, folder=server.node.folder,
        ))  # fmt: skip

    def _undisturbed(self):
        job = self.job("reference")
        job.start()
        if job.advance(self.steps) != "there":
            raise AssertionError(f"the run without faults: {job.failures}")
        tools.advance(job.ranks)
        entries = job.entries()
        problems = history.check(self.plan, entries, job.starts, entries)
        if problems:
            raise AssertionError("\n".join(problems))
        return entries

    def job(self, name):
        return Job(name, self.nodes, self.servers, self.steps, f"{self.folder}/{name}")

    def stop(self):
        for server in self.servers:
            server.kill()
