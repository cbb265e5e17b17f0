#!/usr/bin/env python3
"""Trains a MimoModel on several GPUs, one process each, with Megatron-Core's own data
parallelism, once for each way of delivery.

    PYTHONPATH=trainer_shim/python python3 data_parallel.py \\
        --ballast-server ballast-server --device cuda --world 2 --out losses.json

Both modules are on every rank. Each way begins with the same weights and trains on the
same samples: its global loss of each step must equal the loss of `off`, except for
rounding. `split` is placement `split`, over `accept_split_placement`. Prints one JSON
object per way and exits with 1 if a loss differs by more than `--noise` of it. Without
GPUs: `--device cpu`, over Gloo. Needs torch, transformers and megatron-core.
"""

import argparse
import contextlib
import json
import sys
import tempfile

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig

import ballast
import data
import model as models
import on_cpu
import single
from ballast.adapters import megatron_bridge

NOISE = {"cpu": 1e-4, "cuda": 3e-2}
SAMPLES, MICRO = 16, 8  # of a step and of a micro-batch, for each rank
WAYS = ("off", "direct", "exchange", "hybrid", "split")


def build(token_ids, device, dtype, split):
    """(model in Megatron's data parallelism, optimizer)"""
    source = models.hugging_face(token_ids, data.VOCABULARY).to(device, dtype)
    model = models.mimo_model(source, int(token_ids["image"]))
    if split:
        tower = model.modality_submodules[models.MODALITY].encoders[models.ENCODER]
        megatron_bridge.accept_split_placement(tower, parallel_state.get_data_parallel_group())
    # Sums: each rank's loss is already divided by the whole step's number of tokens.
    config = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, overlap_grad_reduce=False, use_distributed_optimizer=False,
    )  # fmt: skip
    wrapped = DistributedDataParallel(model.config, config, model)
    return wrapped, torch.optim.AdamW(model.parameters(), lr=3e-4)


def train(rank, way, address, arguments):
    """The global loss of each step, the same on every rank."""
    cuda = arguments.device == "cuda"
    device = "cuda:%d" % rank if cuda else "cpu"
    dtype = torch.bfloat16 if cuda else torch.float32
    losses, label_tokens = [], []
    with ballast.Loader(
        address, dp_rank=rank, device=device, array="torch", steps=arguments.steps,
        pixel_type="bfloat16" if cuda else "float32",
    ) as loader:  # fmt: skip
        model, optimizer = build(loader.job["model"]["token_ids"], device, dtype, way == "split")
        to_mimo = megatron_bridge.Mimo(loader)
        loss = torch.zeros((), device=device)
        for batch in loader:
            part = single.loss_sum(model, to_mimo(batch)) / max(batch.step_totals.label_tokens, 1)
            part.backward()
            loss += part.detach()
            if batch.micro_batch + 1 < batch.num_micro_batches:
                continue
            model.finish_grad_sync()
            for weight in model.parameters():
                weight.grad = weight.main_grad.to(weight.dtype)
            optimizer.step()
            model.zero_grad_buffer()
            optimizer.zero_grad(set_to_none=True)
            dist.all_reduce(loss)
            losses.append(float(loss))
            label_tokens.append(batch.step_totals.label_tokens)
            loss.zero_()
    return {"loss": losses, "label_tokens": label_tokens}


def run(rank, ways, addresses, folder, arguments):
    torch.set_num_threads(1)
    on_cpu.install()
    cuda = arguments.device == "cuda"
    if cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if cuda else "gloo", init_method="file://" + folder + "/meeting", rank=rank,
        world_size=arguments.world, device_id=torch.device("cuda", rank) if cuda else None,
    )  # fmt: skip
    parallel_state.initialize_model_parallel()
    results, bad = {}, False
    for way in ways:
        results[way] = found = train(rank, way, addresses[way], arguments)
        wanted = results[ways[0]]["loss"]
        pairs = list(zip(found["loss"], wanted))
        found["difference"] = max(abs(a - b) / abs(b) for a, b in pairs)
        bad = bad or not found["difference"] <= arguments.noise or len(pairs) != arguments.steps
        if rank == 0:
            print(json.dumps({"way": way, **found}), flush=True)
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump({"world": arguments.world, "noise": arguments.noise,
                           "ways": results}, file)  # fmt: skip
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    if bad:
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ballast-server", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--noise", type=float, help="default: 1e-4 on a CPU, else 3e-2")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--ways", default=",".join(WAYS))
    arguments = parser.parse_args()
    arguments.noise = arguments.noise or NOISE[arguments.device]
    ways = arguments.ways.split(",")
    cost = ", cost: {vision: {linear: 1}, language: {linear: 1}}"
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        addresses = {
            way: servers.enter_context(
                data.served(
                    arguments.ballast_server, dp=arguments.world, name=way,
                    delivery="direct" if way == "split" else way,
                    samples=SAMPLES * arguments.world, micro=MICRO * arguments.world,
                    balance=cost + (", placement: split" if way == "split" else ""),
                )
            )
            for way in ways
        }  # fmt: skip
        torch.multiprocessing.spawn(run, (ways, addresses, folder, arguments), arguments.world)


if __name__ == "__main__":
    main()
