#!/usr/bin/env python3
"""Hugging Face's Trainer. It takes batches of plain dictionaries from its dataloader.

    torchrun --nproc-per-node 2 with_trainer.py --server 127.0.0.1:7070 --steps 20

With --out FOLDER it saves a checkpoint every 5 steps there, and continues from the last one.
"""

import argparse
import os
import tempfile

import ballast
import transformers
from ballast.adapters import huggingface_trainer
from small_qwen import model_for
from transformers.trainer_utils import get_last_checkpoint


class Trainer(transformers.Trainer):
    def __init__(self, loader, **options):
        super().__init__(**options)
        self.loader = loader

    def get_train_dataloader(self):
        return huggingface_trainer.Batches(self.loader, self.args)

    def log(self, logs, *arguments, **options):
        if "loss" in logs and self.is_world_process_zero():
            print("step %d loss %.6f" % (self.state.global_step - 1, logs["loss"]), flush=True)
        super().log(logs, *arguments, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", help="folder of checkpoints; default: none are kept")
    arguments = parser.parse_args()
    world = int(os.environ.get("WORLD_SIZE", 1))
    job = ballast.Connection.of(arguments.server).job()
    accumulation = job["global_batch"] // job["micro_batch"]
    with ballast.Loader(
        arguments.server, device=arguments.device, array="torch", steps=arguments.steps,
        # The Trainer takes all batches of a step while it still has the last step's.
        max_batches_held=2 * accumulation + 1,
    ) as loader, tempfile.TemporaryDirectory() as temporary:  # fmt: skip
        folder = arguments.out or temporary
        os.makedirs(folder, exist_ok=True)
        model, last = model_for(job), get_last_checkpoint(folder)
        if last:
            # The Trainer saves these models' weights by names by which it does not find them
            # again (transformers 5.23: a warning of missing keys), but from_pretrained does.
            model = model.from_pretrained(last)
        trainer = Trainer(
            loader,
            model=model,
            # By the tokens of the whole step. The models' own losses do not take their number
            # in all releases of transformers, and the Trainer then takes a mean of means.
            compute_loss_func=ballast.adapters.huggingface.loss,
            callbacks=[huggingface_trainer.checkpoints(loader)],
            args=transformers.TrainingArguments(
                output_dir=folder, use_cpu=arguments.device == "cpu",
                bf16=arguments.device == "cuda", max_steps=arguments.steps,
                # The micro-batches of a step. The Trainer divides the sum of losses by
                # the tokens of all of them and of all ranks.
                gradient_accumulation_steps=accumulation,
                average_tokens_across_devices=world > 1, ddp_find_unused_parameters=True,
                learning_rate=1e-3, lr_scheduler_type="constant", weight_decay=0.01,
                max_grad_norm=0.0, logging_steps=1, report_to=[],
                save_strategy="steps" if arguments.out else "no", save_steps=5,
                disable_tqdm=True,
            ),
        )  # fmt: skip
        trainer.train(resume_from_checkpoint=last)


if __name__ == "__main__":
    main()
