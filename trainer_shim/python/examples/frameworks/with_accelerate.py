#!/usr/bin/env python3
"""Hugging Face Accelerate. The loader is not prepared: its batches are already this
rank's, on its device.

    torchrun --nproc-per-node 2 with_accelerate.py --server 127.0.0.1:7070 --steps 20
"""

import argparse

import accelerate
import ballast
import torch
from small_qwen import model_for


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments = parser.parse_args()
    accelerator = accelerate.Accelerator(
        cpu=arguments.device == "cpu",
        kwargs_handlers=[accelerate.DistributedDataParallelKwargs(find_unused_parameters=True)],
    )
    with ballast.Loader(
        arguments.server, device=arguments.device, array="torch", steps=arguments.steps
    ) as loader:
        model = model_for(loader.job)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        model, optimizer = accelerator.prepare(model, optimizer)
        mean = torch.zeros((), device=accelerator.device)
        for batch in loader:
            # The sum of this rank's losses over the tokens of all ranks; gradients are
            # averaged.
            inputs = ballast.adapters.huggingface.packed(batch)
            labels = inputs.pop("labels")
            loss = accelerator.num_processes * ballast.adapters.huggingface.loss(
                model(**inputs), labels, batch.step_totals.label_tokens
            )
            accelerator.backward(loss)
            mean += loss.detach() / accelerator.num_processes
            if batch.micro_batch + 1 == batch.num_micro_batches:
                optimizer.step()
                optimizer.zero_grad()
                accelerator.print(
                    "step %d loss %.6f" % (loader.step, accelerator.reduce(mean, "sum")), flush=True
                )
                mean.zero_()
    accelerator.end_training()


if __name__ == "__main__":
    main()
