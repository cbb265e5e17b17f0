#!/usr/bin/env python3
"""Compares dynamic with static context parallelism on drawn samples with images.

    shared_packs_report.py --bin bazel-bin --ranks 64 --most-ranks 16

Plans the same steps with packs that up to --most-ranks ranks share (packing.dynamic_cp, with
balance.placement `split`) and with language cp of as many, and prints a line of a Markdown
table for each. Attention is squared tokens over the ranks of a pack, patches are those that a
rank encodes: of the busiest rank, summed over micro-batches, over the mean of all ranks, where
each image is encoded once. The bound is what the largest sample of each micro-batch imposes on
patches. Keys and embeddings are the tokens that a rank receives from
others for each token, and the embeddings that ranks hold for each image token. Standard
library only.
"""

import argparse
import json
import os
import subprocess
import tempfile

CONFIG = """
sources:
  - name: documents
    format: mock
    lengths: {{mode: lognormal, min: 16, max: {longest}, mean: 4096, sigma: {sigma}}}
    images: {{min: 0, max: {images}, pixels: {{min: 50000, max: 2000000, mean: 500000, sigma: 1}}}}
model: {{profile: qwen2_5_vl}}
batch: {{global: {samples}, micro: {samples}, max_tokens: {longest}}}
topology: {{modules: {{vision: {{dp: {dp}, cp: {cp}}}, language: {{dp: {dp}, cp: {cp}}}}}}}
balance: {{placement: {placement}, cost: {{vision: {{linear: 1}}}}}}
packing: {{mode: scheduled, max_tokens_per_rank: 8192, dynamic_cp: {dynamic}}}
"""


def plan(program, folder, text, steps):
    """The schedules of the steps."""
    path = os.path.join(folder, "ballast.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    for step in range(steps):
        done = subprocess.run(
            [program, "plan", "--config", path, "--step", str(step), "--json"],
            check=True, stdout=subprocess.PIPE,
        )  # fmt: skip
        yield json.loads(done.stdout)


def figures(schedules, ranks, cp):
    """`cp`: static context ranks, each of which encodes all images of its pack; 1 where each
    image is encoded once."""
    attention, patches = [0.0, 0.0], [0.0, 0.0]  # of the busiest ranks, and of the mean one
    bound = 0.0
    micro_batches = tokens = keys = rows = held = 0
    for schedule in schedules:
        for micro_batch in schedule["micro_batches"]:
            micro_batches += 1
            work, encoded = [0.0] * (ranks // cp), [0.0] * (ranks // cp)
            for sample in micro_batch["samples"]:
                owner = sample["owner"]["language"]
                shared = sample.get("pack_ranks", {}).get("language", 1)
                for rank in range(owner, owner + shared):
                    work[rank] += sample["tokens"] ** 2 / shared / cp
                encoded[sample["owner"]["vision"]] += sample["patches"]
                tokens += sample["tokens"]
                keys += sample["tokens"] * (shared * cp - 1)
                rows += sample["patches"] / 4
                held += sample["patches"] / 4 * shared * cp
            attention[0] += max(work)
            attention[1] += sum(work) * cp / ranks
            patches[0] += max(encoded)
            patches[1] += sum(encoded) / ranks
            largest = max(sample["patches"] for sample in micro_batch["samples"])
            bound += max(sum(encoded) / ranks, largest)
    return (attention[0] / attention[1], patches[0] / patches[1], bound / patches[1], keys / tokens,
            held / rows, micro_batches / len(schedules))  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="bazel-bin", help="folder with server/ballast-server")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--most-ranks", type=int, default=16)
    parser.add_argument("--longest", type=int, default=131072)
    parser.add_argument("--sigma", type=float, default=1.8)
    parser.add_argument("--images", type=int, default=4, help="most images of a sample")
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    ranks, most = options.ranks, options.most_ranks
    for way, cp in (("dynamic", 1), ("static", most)):
        text = CONFIG.format(
            longest=options.longest, sigma=options.sigma, images=options.images,
            samples=16 * ranks, dp=ranks // cp, cp=cp, dynamic=most if cp == 1 else 1,
            placement="split" if cp == 1 else "paired",
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(options.bin, "server/ballast-server")
            schedules = list(plan(program, folder, text, options.steps))
        print(
            "| %s | %.3f | %.3f | %.3f | %.1f | %.1f | %.1f |"
            % (way, *figures(schedules, ranks, cp))
        )


if __name__ == "__main__":
    main()
