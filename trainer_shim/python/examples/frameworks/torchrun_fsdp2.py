#!/usr/bin/env python3
"""PyTorch's fully_shard (FSDP2) under torchrun: parameters in shards on all ranks.

torchrun --nproc-per-node 2 torchrun_fsdp2.py --server 127.0.0.1:7070 --steps 20
"""

import argparse

import ballast
import torch
import torch.distributed as dist
from small_qwen import model_for
from torch.distributed.fsdp import fully_shard


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments = parser.parse_args()
    dist.init_process_group("nccl" if arguments.device == "cuda" else "gloo")
    mesh = dist.init_device_mesh(arguments.device, (dist.get_world_size(),))

    with ballast.Loader(
        arguments.server, device=arguments.device, array="torch", steps=arguments.steps
    ) as loader:
        model = model_for(loader.job).to(arguments.device)
        # Every rank gathers every layer, so all call the tower in a micro-batch or none does:
        # with `balance.align_images: true`, the default, a rank without an image gets a dummy
        # image, which `packed` hands on (docs/pytorch.md).
        for layer in [*model.model.language_model.layers, *model.model.visual.blocks]:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        mean = 0.0
        for batch in loader:
            # The sum of this rank's losses over the tokens of all ranks; FSDP averages.
            inputs = ballast.adapters.huggingface.packed(batch)
            labels = inputs.pop("labels")
            loss = dist.get_world_size() * ballast.adapters.huggingface.loss(
                model(**inputs), labels, batch.step_totals.label_tokens
            )
            loss.backward()
            mean += loss.detach() / dist.get_world_size()
            if batch.micro_batch + 1 == batch.num_micro_batches:
                optimizer.step()
                optimizer.zero_grad()
                dist.all_reduce(mean)
                if dist.get_rank() == 0:
                    print("step %d loss %.6f" % (loader.step, mean), flush=True)
                mean = 0.0
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
