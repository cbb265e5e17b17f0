"""Jobs on three nodes under faults that seeds draw: no sample is lost, repeated,
exchanged or replaced.

    bazel test //tests/cluster:seeds_test
    bazel run //tests/cluster:seeds_test -- --seeds 500 --first 1000

Ends with how often each fault was injected and the longest `next` under it.
"""

import argparse
import collections
import os
import sys
import time

from tests.cluster import faults, job, nodes
from tests.cluster.disturb import Disturbance
from tests.harness import tools

STEPS = 16
SAMPLES = 60
DELIVERIES = ("exchange", "hybrid", "direct")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="seeds_test")
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--verbose", action="store_true", help="a line a seed")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    nodes.enter()
    library = os.path.join(
        os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"],
        "tests/cluster/libfaulty_reads.so",
    )  # fmt: skip
    begin = time.monotonic()
    injected = collections.Counter()
    longest = collections.defaultdict(float)
    restarts = failures = batches = moves = 0
    problems = []
    with tools.job_folder() as folder:
        machines = nodes.make(folder)
        tools.ok("ballast-server", "make-corpus", "--out", folder, "--samples", SAMPLES)
        for number, delivery in enumerate(DELIVERIES):
            seeds = range(options.first, options.first + options.seeds)
            seeds = [s for s in seeds if s % len(DELIVERIES) == number]
            if not seeds:
                continue
            cluster = job.Cluster(machines, delivery, STEPS, folder, library)
            for seed in seeds:
                run = Disturbance(cluster, seed)
                found = run.run()
                problems += [f"seed {seed} ({delivery}): {line}" for line in found]
                injected += run.injected
                restarts += run.restarts
                failures += len(run.failures)
                moves += run.moves
                batches += len(cluster.reference)
                for kind, ms in run.longest_ms.items():
                    longest[kind] = max(longest[kind], ms)
                if options.verbose:
                    drawn = [f"{f.kind}@{f.at}" for f in faults.draw(seed, STEPS)]
                    print(
                        f"{time.monotonic() - begin:.0f} s seed {seed} {delivery}:",
                        ", ".join(drawn),
                        f"- {run.restarts} restarts",
                        flush=True,
                    )
            cluster.stop()
    for kind in faults.KINDS:
        print(f"{kind}: {injected[kind]} times, longest next {longest[kind] / 1000:.1f} s")
    print(
        f"{options.seeds} seeds from {options.first}: {sum(injected.values())} faults,",
        f"{batches} batches; ranks left a server {moves} times, {failures} failed, and the",
        f"job began again {restarts} times; {len(problems)} problems;",
        f"{time.monotonic() - begin:.0f} s",
    )
    if options.seeds >= 20 and not (moves and failures):
        problems.append("the faults ended no rank and moved none: they do not bite")
    if problems:
        sys.exit("\n".join(problems[:50]))


if __name__ == "__main__":
    main(sys.argv[1:])
