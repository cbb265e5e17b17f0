#!/usr/bin/env python3
"""Hugging Face's Trainer. It takes batches of plain dictionaries from its dataloader.

torchrun --nproc-per-node 2 with_trainer.py --server 127.0.0.1:7070 --steps 20
"""

import argparse
import os
import tempfile

import ballast
import transformers
from small_qwen import model_for


class Packed:
    """The loader's batches as the model's arguments."""

    def __init__(self, loader, accumulation):
        self.loader = loader
        self.accumulation = accumulation

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for batch in self.loader:
            # Otherwise the Trainer's steps would not be the loader's.
            assert batch.num_micro_batches == self.accumulation, (
                "step %d has %d micro-batches, and the Trainer takes %d a step: it cannot "
                "take steps of several sizes, nor packing.mode: scheduled"
                % (batch.step, batch.num_micro_batches, self.accumulation)
            )
            yield ballast.adapters.huggingface.packed(batch)


class Trainer(transformers.Trainer):
    def __init__(self, loader, **options):
        super().__init__(**options)
        self.loader = loader

    def get_train_dataloader(self):
        return Packed(self.loader, self.args.gradient_accumulation_steps)

    def log(self, logs, *arguments, **options):
        if "loss" in logs and self.is_world_process_zero():
            print("step %d loss %.6f" % (self.state.global_step - 1, logs["loss"]), flush=True)
        super().log(logs, *arguments, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments = parser.parse_args()
    world = int(os.environ.get("WORLD_SIZE", 1))
    job = ballast.Connection.of(arguments.server).job()
    accumulation = job["global_batch"] // job["micro_batch"]
    with ballast.Loader(
        arguments.server, device=arguments.device, array="torch", steps=arguments.steps,
        # The Trainer takes all batches of a step while it still has the last step's.
        max_batches_held=2 * accumulation + 1,
    ) as loader, tempfile.TemporaryDirectory() as folder:  # fmt: skip
        trainer = Trainer(
            loader,
            model=model_for(job),
            # By the tokens of the whole step. The models' own losses do not take their number
            # in all releases of transformers, and the Trainer then takes a mean of means.
            compute_loss_func=ballast.adapters.huggingface.loss,
            args=transformers.TrainingArguments(
                output_dir=folder, use_cpu=arguments.device == "cpu",
                bf16=arguments.device == "cuda", max_steps=arguments.steps,
                # The micro-batches of a step. The Trainer divides the sum of losses by
                # the tokens of all of them and of all ranks.
                gradient_accumulation_steps=accumulation,
                average_tokens_across_devices=world > 1, ddp_find_unused_parameters=True,
                learning_rate=1e-3, lr_scheduler_type="constant", weight_decay=0.01,
                max_grad_norm=0.0, logging_steps=1, save_strategy="no", report_to=[],
                disable_tqdm=True,
            ),
        )  # fmt: skip
        trainer.train()


if __name__ == "__main__":
    main()
