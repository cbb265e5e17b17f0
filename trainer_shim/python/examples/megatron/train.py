#!/usr/bin/env python3
"""Trains a Megatron-Core MimoModel on Ballast's batches, once for each way of delivery.

    CUDA_DEVICE_MAX_CONNECTIONS=1 PYTHONPATH=trainer_shim/python python3 train.py \\
        --ballast-server ballast-server --device cuda --steps 200 --out training.json

Each way begins with the same weights and trains on the same samples. The global loss
of a step is the sum over all ranks' supervised tokens, divided by their number. One
rank's loss cannot be compared, since the ranks have different samples in each way. All
ranks are in this process, one after the other on one GPU. Prints one JSON object per
way, and exits with 1 if a step's loss differs from the loss of `off` by more than
`--noise` of it, or if the loss has not fallen. `--out` is written after each way;
plot_losses.py draws it. Needs torch, transformers and megatron-core.
"""

import argparse
import functools
import json
import math
import os
import sys
import time

import torch

import data
import megatron.core
import model as models
import ranks as ranks_of
import single
from ballast.adapters import megatron_bridge

# Ways add the same gradients in different orders, and in bfloat16 each step's rounding carries over
# to the next.
NOISE = {"cpu": 1e-4, "cuda": 3e-2}


class Optimizer:
    """AdamW over float32 copies of the weights, with gradients added up in float32, as
    in Megatron-Core's own optimizer for bfloat16."""

    def __init__(self, model):
        self._weights = list(model.parameters())
        self._copies = [weight.detach().float().clone() for weight in self._weights]
        for weight, copy in zip(self._weights, self._copies):
            copy.grad = torch.zeros_like(copy)
            weight.register_post_accumulate_grad_hook(functools.partial(self._add, copy))
        self._adam = torch.optim.AdamW(self._copies, lr=3e-4, weight_decay=0.0)

    @staticmethod
    def _add(copy, weight):
        copy.grad += weight.grad
        weight.grad = None

    @torch.no_grad()
    def step(self):
        self._adam.step()
        for weight, copy in zip(self._weights, self._copies):
            weight.copy_(copy)
            copy.grad.zero_()


def train(arguments, delivery, steps, seconds):
    """Runs one way of delivery; returns its global loss per step and other
    measurements.

    Ends after `steps`, or with the first step that is done after `seconds`.
    """
    dtype = torch.bfloat16 if arguments.device == "cuda" else torch.float32
    result = {"loss": [], "label_tokens": [], "dummy_images": 0, "seconds": 0.0}
    with data.served(
        arguments.ballast_server, delivery=delivery, samples=arguments.samples,
        micro=arguments.samples // 2, dp=arguments.ranks, dataset=arguments.dataset,
        max_pixels=arguments.max_pixels,
    ) as address, ranks_of.Ranks(
        address, arguments.ranks, device=arguments.device, exchange=delivery == "exchange",
        steps=steps, pixel_type="bfloat16" if dtype == torch.bfloat16 else "float32",
    ) as ranks:  # fmt: skip
        token_ids = ranks.job["model"]["token_ids"]
        source = models.hugging_face(token_ids, data.VOCABULARY, hidden=arguments.hidden)
        source.to(arguments.device, dtype)
        model = models.mimo_model(source, token_ids["image"])
        del source
        optimizer = Optimizer(model)
        total, begun = torch.zeros((), device=arguments.device), time.perf_counter()
        for batches in ranks:
            for batch in batches:
                inputs = megatron_bridge.forward_inputs(batch)
                loss = single.loss_sum(model, inputs) / max(batch.step_totals.label_tokens, 1)
                loss.backward()
                total += loss.detach()
                result["dummy_images"] += int(batch.dummy_image)
            if batch.micro_batch + 1 == batch.num_micro_batches:
                optimizer.step()
                result["loss"].append(float(total))
                result["label_tokens"].append(batch.step_totals.label_tokens)
                total.zero_()
                if time.perf_counter() - begun > seconds:
                    break
        result["seconds"] = time.perf_counter() - begun
    return result


def check(results, noise):
    """Describes the faults of the losses; notes each way's largest difference."""
    faults = []
    reference = next(iter(results))
    for name, result in results.items():
        losses, wanted = result["loss"], results[reference]["loss"]
        pairs = list(zip(losses, wanted))
        worst = max(range(len(pairs)), key=lambda i: abs(pairs[i][0] / pairs[i][1] - 1))
        result["worst_relative"] = abs(pairs[worst][0] / pairs[worst][1] - 1)
        result["worst_step"] = worst
        tenth = max(1, len(losses) // 10)
        if (
            len(losses) != len(wanted)
            or result["label_tokens"] != results[reference]["label_tokens"]
        ):
            faults.append("%s: other samples than %s" % (name, reference))
        if not result["worst_relative"] <= noise:
            faults.append("%s: step %d has loss %g; %s has %g"
                          % (name, worst, pairs[worst][0], reference, pairs[worst][1]))  # fmt: skip
        if not sum(losses[-tenth:]) < sum(losses[:tenth]):
            faults.append("%s: the loss has not fallen" % name)
    return faults


def write(arguments, noise, results, faults):
    cuda = arguments.device == "cuda"
    record = {
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "dtype": "bfloat16" if cuda else "float32",
        "torch": torch.__version__, "megatron_core": megatron.core.__version__,
        "CUDA_DEVICE_MAX_CONNECTIONS": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", ""),
        "ranks": arguments.ranks, "samples": arguments.samples, "noise": noise,
        "agree": not faults, "faults": faults, "deliveries": results,
    }  # fmt: skip
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ballast-server", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--deliveries", default="off,direct,exchange")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--samples", type=int, default=32, help="of a step")
    parser.add_argument("--dataset", type=int, default=512)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--max-pixels", type=int, default=200704)
    parser.add_argument("--noise", type=float)
    parser.add_argument("--seconds", type=float, default=math.inf,
                        help="end the first way after its share of this time, and the others "
                        "after as many steps")  # fmt: skip
    parser.add_argument("--out", help="file for all results, JSON")
    arguments = parser.parse_args()
    noise = arguments.noise or NOISE[arguments.device]
    results, faults = {}, []
    deliveries = arguments.deliveries.split(",")
    steps, seconds = arguments.steps, arguments.seconds / len(deliveries)
    with single.process():
        for delivery in deliveries:
            results[delivery] = train(arguments, delivery, steps, seconds)
            steps, seconds = len(results[delivery]["loss"]), math.inf
            last = {"delivery": delivery, "steps": len(results[delivery]["loss"]),
                    "first": results[delivery]["loss"][0], "last": results[delivery]["loss"][-1],
                    "seconds": results[delivery]["seconds"]}  # fmt: skip
            print(json.dumps(last), flush=True)
            faults = check(results, noise)
            if arguments.out:
                write(arguments, noise, results, faults)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
