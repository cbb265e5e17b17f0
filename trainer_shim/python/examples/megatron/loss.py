#!/usr/bin/env python3
"""Compares a Megatron-Core model's loss, fed by Ballast, with Hugging Face's.

    PYTHONPATH=trainer_shim/python python3 loss.py --ballast-server ballast-server

Two models of the same random weights train on the same samples: MimoModel on packed
batches, Hugging Face's Qwen2.5-VL on each sample alone; with `--packing padded` both on
the loader's padded batches, the latter with the batch's attention mask. Prints one JSON
object per step and exits with 1 if the losses differ by more than `--noise` of their
size. Needs torch, transformers and megatron-core; runs on a CPU.
"""

import argparse
import json
import math
import sys

import torch

import ballast
import data
import model as models
import single
from ballast.adapters import huggingface


def hugging_face_backward(model, batch):
    """Adds a micro-batch's part of the gradients of the step's mean loss; returns its
    part of the loss."""
    total = 0.0
    if "attention_mask" in batch:
        calls = [huggingface.padded(batch)]
    else:
        calls = huggingface.unpacked(batch)
    for sample in calls:
        labels = int((sample["labels"][:, 1:] != -100).sum())
        if labels:
            loss = model(**sample).loss * (labels / batch.step_totals.label_tokens)
            loss.backward()
            total += float(loss.detach())
    return total


def difference(found, expected):
    """The relative difference of two numbers or tensors; infinite where one is not a number, or
    `expected` is zero."""
    found, expected = (torch.as_tensor(each, dtype=torch.float64) for each in (found, expected))
    relative = float((found - expected).norm() / expected.norm())
    return math.inf if math.isnan(relative) else relative


def farthest(found, expected):
    """The largest `difference` of gradients of the same names, and the name."""
    assert set(found) == set(expected), set(found) ^ set(expected)
    relative = {name: difference(found[name], value) for name, value in expected.items()}
    name = max(relative, key=relative.get)
    return relative[name], name


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ballast-server", required=True)
    parser.add_argument("--packing", choices=("shard", "padded"), default="shard")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--noise", type=float, default=1e-5)
    arguments = parser.parse_args()
    served = data.served(arguments.ballast_server, packing=arguments.packing)
    with served as address, single.process():
        loader = ballast.Loader(address, device="cpu", array="torch", steps=arguments.steps)
        with loader:
            token_ids = loader.job["model"]["token_ids"]
            theirs = models.hugging_face(token_ids, data.VOCABULARY)
            rows = arguments.packing == "padded"
            ours = models.mimo_model(theirs, token_ids["image"], rows=rows)
            steppers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (theirs, ours)]
            worst, sums = 0.0, [0.0, 0.0]
            for batch in loader:
                sums[0] += hugging_face_backward(theirs, batch)
                sums[1] += single.backward(ours, batch)
                if batch.micro_batch + 1 < batch.num_micro_batches:
                    continue
                for stepper in steppers:
                    stepper.step()
                    stepper.zero_grad()
                relative = difference(sums[1], sums[0])
                worst = max(worst, relative)
                print(json.dumps({
                    "step": batch.step, "samples": batch.step_totals.samples,
                    "images": batch.step_totals.images,
                    "hugging_face": sums[0], "megatron": sums[1], "relative": relative,
                }), flush=True)  # fmt: skip
                sums = [0.0, 0.0]
    return 0 if worst <= arguments.noise else 1


if __name__ == "__main__":
    sys.exit(main())
