#!/usr/bin/env python3
"""Lightning. The loader is the trainer's dataloader; Lightning's checkpoints hold its
state_dict, for which it needs an end.

    torchrun --nproc-per-node 2 with_lightning.py --server 127.0.0.1:7070 --steps 20
"""

import argparse
import os

import ballast
import lightning
import torch
from small_qwen import model_for


class Qwen(lightning.LightningModule):
    def __init__(self, job):
        super().__init__()
        self.automatic_optimization = False  # a step ends where its last micro-batch does
        self.model = model_for(job)
        self.mean = 0.0

    def transfer_batch_to_device(self, batch, device, dataloader_idx):
        return batch  # the loader has put it there

    def training_step(self, batch, _):
        world = self.trainer.world_size
        # The sum of this rank's losses over the tokens of all ranks; DDP averages.
        inputs = ballast.adapters.huggingface.packed(batch)
        labels = inputs.pop("labels")
        loss = world * ballast.adapters.huggingface.loss(
            self.model(**inputs), labels, batch.step_totals.label_tokens
        )
        self.manual_backward(loss)
        self.mean += loss.detach() / world
        if batch.micro_batch + 1 == batch.num_micro_batches:
            self.optimizers().step()
            self.optimizers().zero_grad()
            mean = self.all_gather(self.mean).sum()
            if self.trainer.is_global_zero:
                print("step %d loss %.6f" % (batch.step, mean), flush=True)
            self.mean = 0.0

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments = parser.parse_args()
    world = int(os.environ.get("WORLD_SIZE", 1))
    with ballast.Loader(
        arguments.server, device=arguments.device, array="torch", steps=arguments.steps
    ) as loader:
        trainer = lightning.Trainer(
            accelerator=arguments.device, devices=world, max_epochs=1,
            strategy="ddp_find_unused_parameters_true" if world > 1 else "auto",
            use_distributed_sampler=False,  # the servers give each rank its samples
            logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Qwen(loader.job), loader)


if __name__ == "__main__":
    main()
