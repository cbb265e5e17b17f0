#!/usr/bin/env python3
"""Compares packs that ranks share with the groups of Megatron-Core's BalancedCPScheduler.

Reads a list of lengths and prints of each plan: the attention work of the busiest rank over
the mean rank's, the keys that a token's rank receives, micro-batches, and the most tokens of
a rank.

    pip install megatron-core==0.19.2
    bazel build --config=opt //server:ballast-server
    ballast-server inspect lengths --mode lognormal --min 16 --max 131072 --mean 4096 \\
        --sigma 1.8 --count 1024 |
      tests/benchmarks/compare_context.py --ranks 64 --most-ranks 16 --tokens 8192
"""

import argparse
import collections
import json
import subprocess
import sys

SERVER = "bazel-bin/server/ballast-server"


def theirs(lengths, ranks, tokens):
    """Megatron-Core's groups; None where its scheduler fails or loses a sample."""
    from megatron.core.pipeline_parallel import hybrid_cp_schedule

    class Group:  # what the scheduler asks of the group of data and context parallelism
        def size(self):
            return ranks

    scheduler = hybrid_cp_schedule.BalancedCPScheduler(tokens, Group())
    try:
        _, groups = scheduler.get_groups_and_subsamples(list(enumerate(lengths)), None)
    except (AssertionError, IndexError):
        return None
    found = {sample for group in groups for rank in group for sample in rank}
    return groups if len(found) == len(lengths) else None


def ours(batches, ranks, most_ranks, tokens, algorithm="refined", server=SERVER):
    """What `inspect context` prints for the lengths of each batch."""
    done = subprocess.run(
        [server, "inspect", "context", "--algorithm", algorithm, "--ranks", str(ranks),
         "--most-ranks", str(most_ranks), "--tokens", str(tokens)],
        input="".join(json.dumps({"lengths": lengths}) + "\n" for lengths in batches),
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def figures(lengths, groups):
    """ContextFigures of server/schedule/context_packs.h, by its formulas."""
    busiest = mean = most = keys = 0
    for group in groups:
        shared = collections.Counter(sample for rank in group for sample in rank)
        work = [sum(lengths[i] ** 2 / shared[i] for i in rank) for rank in group]
        busiest += max(work)
        mean += sum(work) / len(work)
        most = max(most, max(sum(lengths[i] / shared[i] for i in rank) for rank in group))
        keys += sum(lengths[i] * (count - 1) for i, count in shared.items())
    return {"busiest": busiest, "mean": mean, "keys_moved": keys, "most_tokens": most}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", default=SERVER, help="the program (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=16, help="default: %(default)s")
    parser.add_argument("--most-ranks", type=int, default=16, help="default: %(default)s")
    parser.add_argument("--tokens", type=int, default=8192, help="a rank (default: %(default)s)")
    args = parser.parse_args()
    lengths = json.load(sys.stdin)
    rows = {}
    for name, algorithm in (("dynamic", "refined"), ("static", "static")):
        rows[name] = ours(
            [lengths], args.ranks, args.most_ranks, args.tokens, algorithm, args.server
        )[0]["ranks"]
    rows["Megatron's"] = theirs(lengths, args.ranks, args.tokens)
    print("| | busiest | keys | micro-batches | tokens |\n| --- | --- | --- | --- | --- |")
    for name, groups in rows.items():
        if groups is None:
            print("| %s | fails on these lengths | | | |" % name)
            continue
        found = figures(lengths, groups)
        print(
            "| %s | %.3f | %.1f | %d | %.0f |"
            % (name, found["busiest"] / found["mean"], found["keys_moved"] / sum(lengths),
               len(groups), found["most_tokens"])
        )  # fmt: skip


if __name__ == "__main__":
    main()
