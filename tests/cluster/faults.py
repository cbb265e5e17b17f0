"""Draws a run's faults from a seed. Pure: a seed always gives the same faults."""

import dataclasses
import random

# Each kind and what it does to the cluster (job.py carries it out).
KINDS = {
    "kill server": "SIGKILL, started again",
    "stop server": "SIGSTOP, then SIGCONT",
    "drain server": "SIGTERM, started again",
    "roll server": "drained, started with other settings of serve",
    "kill rank": "SIGKILL; the job starts again from its checkpoint",
    "stop rank": "SIGSTOP, then SIGCONT",
    "eio": "a node's reads fail with EIO",
    "estale": "a node's reads fail with ESTALE",
    "stalled reads": "a node's reads hang",
    "one-way partition": "a node does not hear another",
    "partition": "two nodes do not hear each other",
    "packet loss": "a node loses three of ten packets",
    "full tmpfs": "a node's tmpfs is full",
    "two generations": "the job starts again while its ranks still run",
    # The next four: while another node's server is down.
    "delay": "bytes to and from a node's server take longer",
    "resets": "connections to a node's server break, again and again",
    "held bytes": "no byte to or from a node's server passes",
    "one-way hold": "no byte to a node's server passes; its own do",
}
# What the proxy of the node is told (proxy.py).
PROXIED = {
    "delay": "delay 0.1",
    "resets": "reset 0.2",
    "held bytes": "hold",
    "one-way hold": "hold-in",
}


@dataclasses.dataclass(frozen=True)
class Fault:
    kind: str
    at: int  # step
    node: int
    other: int  # another node
    module: str
    # The fault ends after this many further steps or seconds, whichever is first.
    steps: int
    seconds: float


def draw(seed, steps, nodes=3):
    """The faults of a run of `steps` steps, in the order of their steps."""
    chance = random.Random(seed)
    count = chance.randint(3, 5)
    at = sorted(chance.sample(range(1, steps - 1), count))
    found = []
    for step in at:
        node = chance.randrange(nodes)
        found.append(Fault(
            kind=chance.choice(list(KINDS)),
            at=step,
            node=node,
            other=(node + chance.randrange(1, nodes)) % nodes,
            module=chance.choice(("vision", "language")),
            steps=chance.randint(2, 6),
            seconds=chance.choice((0.5, 1.0, 2.0, 5.0)),
        ))  # fmt: skip
    return found
