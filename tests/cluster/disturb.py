"""Carries out the faults of faults.py on a job, and lets it go on to its end."""

import collections
import signal

from tests.cluster import faults, history
from tests.harness import tools

# Runs that a job may need: each fault can end one, and a stall another.
MOST_RUNS = 20


class Disturbance:
    """One job under the faults of one seed."""

    def __init__(self, cluster, seed):
        self.injected = collections.Counter()
        self.longest_ms = collections.defaultdict(float)  # `next`, by kind
        self._cluster = cluster
        self._seed = seed
        self._job = cluster.job(f"seed{seed}")
        self._left = []  # ranks of an earlier generation

    def run(self):
        """Returns what is wrong with the job's history."""
        self._job.start()
        for fault in faults.draw(self._seed, self._cluster.steps):
            self._advance(fault.at)
            if not self._job.ranks:
                break  # the job had done all steps when it was to start again
            seen = self._job.seen()
            heal = self._inject(fault)
            self.injected[fault.kind] += 1
            state = self._job.advance(
                min(fault.at + fault.steps, self._cluster.steps), fault.seconds
            )
            heal()
            if state == "failed":
                self._restart()
            self._advance(min(fault.at + fault.steps, self._cluster.steps))
            longest = self._job.longest_next_ms(seen)
            self.longest_ms[fault.kind] = max(self.longest_ms[fault.kind], longest)
        self._advance(self._cluster.steps)
        tools.advance(self._job.ranks)
        self._end_left()
        dead = [
            f"the server of {server.node.name} ended with status {server.process.poll()}"
            for server in self._cluster.servers
            if server.process.poll() is not None
        ]
        return dead + history.check(
            self._cluster.plan, self._cluster.reference, self._job.starts,
            self._job.entries(),
        )  # fmt: skip

    @property
    def restarts(self):
        return len(self._job.starts) - 1

    @property
    def moves(self):
        return self._job.moves()

    @property
    def failures(self):
        return self._job.failures

    def _advance(self, step):
        """Goes on to `step`, over as many runs as it takes. No fault is active."""
        while True:
            state = self._job.advance(step)
            if state == "there":
                return
            if state == "late":
                raise AssertionError(f"seed {self._seed}: the job hangs before step {step}")
            self._restart()

    def _restart(self):
        if len(self._job.starts) > MOST_RUNS:
            raise AssertionError(f"seed {self._seed}: {self._job.failures[-3:]}")
        self._job.kill()
        self._job.start()

    def _end_left(self):
        for rank in self._left:
            rank.kill()
        self._left = []

    def _inject(self, fault):
        """Returns what ends the fault."""
        nodes = self._cluster.nodes
        node, other = nodes[fault.node], nodes[fault.other]
        server = self._cluster.servers[fault.node]

        def hear():
            node.hear_all()
            other.hear_all()

        if fault.kind == "kill server":
            server.kill()
            return server.up
        if fault.kind == "drain server":
            server.end(signal.SIGTERM)
            return server.up
        if fault.kind == "stop server":
            server.hang()
            return server.wake
        if fault.kind == "roll server":
            self._cluster.configure(server, threads=1 + fault.steps % 2, prefetch=fault.steps)
            server.end(signal.SIGTERM)
            server.up()
            return lambda: None
        if fault.kind in ("eio", "estale", "stalled reads"):
            server.read_fault({"eio": "e", "estale": "t", "stalled reads": "h"}[fault.kind])
            return lambda: server.read_fault(".")
        if fault.kind in ("one-way partition", "partition"):
            node.ignore(other)
            if fault.kind == "partition":
                other.ignore(node)
            return hear
        if fault.kind in faults.PROXIED:
            # Its ranks need the others then.
            away = self._cluster.servers[fault.other]
            away.kill()
            node.proxy(faults.PROXIED[fault.kind])

            def come_back():
                node.proxy("none")
                away.up()

            return come_back
        if fault.kind == "packet loss":
            node.lose(30)
            return hear
        if fault.kind == "full tmpfs":
            node.fill()
            return node.empty
        if fault.kind == "two generations":
            # The old ranks keep their streams until the job is done.
            self._left += self._job.ranks
            self._job.start()
            return lambda: None
        if fault.kind == "kill rank":
            victim = self._rank(fault)
            victim.process.kill()
            return lambda: None
        assert fault.kind == "stop rank", fault.kind
        victim = self._rank(fault)
        victim.process.send_signal(signal.SIGSTOP)
        return lambda: victim.process.send_signal(signal.SIGCONT)

    def _rank(self, fault):
        return next(
            rank for rank in self._job.ranks
            if rank.node.number == fault.node and rank.module == fault.module
        )  # fmt: skip
