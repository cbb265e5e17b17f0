"""Hugging Face's own Trainer over a loader: its checkpoints, within an epoch. And Accelerate's
`send_to_device` of a batch, which it calls of whatever a loop is given."""

import shutil
import unittest

import torch
import transformers
from accelerate.utils import send_to_device

import ballast
from ballast.adapters import huggingface, huggingface_trainer
from tests.harness import tools

# 24 samples an epoch, 8 a step in two micro-batches: epochs of 3 steps.
CONFIG = """
sources:
  - name: mock
    format: mock
    lengths: {mode: lognormal, min: 16, max: 64, mean: 40, sigma: 0.5, count: 24}
    images: {min: 0, max: 1, pixels: {min: 784, max: 3136, mean: 2000, sigma: 0.5}}
order: {epochs: 2}
model: {profile: qwen2_5_vl, tokenizer: bytes, position_axes: 1}
batch: {global: 8, micro: 4, max_tokens: 256}
topology: {modules: {language: {dp: 1}}}
serve: {listen: ["127.0.0.1:0"], memory: 64MiB}
"""
STEPS = 6


def inputs(batch):
    ids = batch["input_ids"].clamp(max=99)
    return {"input_ids": ids, "labels": ids, "number": (batch.step, batch.micro_batch)}


class Model(torch.nn.Module):
    """Learns the next of 100 tokens, with dropout, and notes the batches that it gets."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.embed = torch.nn.Embedding(100, 8)
        self.drop = torch.nn.Dropout(0.5)
        self.head = torch.nn.Linear(8, 100)
        self.got = []

    def forward(self, input_ids, number):
        self.got.append((number, input_ids.sum().item()))
        return {"logits": self.head(self.drop(self.embed(input_ids)))}


class Stop(transformers.TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop |= state.global_step == self.step


class TrainerTest(tools.ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        self = cls()
        cls.config = self.write("job.yaml", CONFIG)

    def train(self, address, folder, *callbacks, position=True, resume=None, accumulation=2,
              batches=huggingface_trainer.Batches, **options):  # fmt: skip
        """The batches of a run, and its weights."""

        class Trainer(transformers.Trainer):
            def get_train_dataloader(self):
                return batches(loader, self.args, inputs)

        with ballast.Loader(
            address, "language", device="cpu", array="torch", max_batches_held=8
        ) as loader:
            if position:
                callbacks += (huggingface_trainer.checkpoints(loader),)
            model = Model()
            trainer = Trainer(
                model=model, callbacks=list(callbacks), compute_loss_func=huggingface.loss,
                args=transformers.TrainingArguments(
                    output_dir=self.path(folder), use_cpu=True, max_steps=STEPS, report_to=[],
                    gradient_accumulation_steps=accumulation, save_strategy="steps", save_steps=2,
                    learning_rate=1e-2, lr_scheduler_type="linear", disable_tqdm=True, seed=5,
                    remove_unused_columns=False, **options,
                ),
            )  # fmt: skip
            trainer.train(resume_from_checkpoint=resume)
            return model.got, model.state_dict()

    def test_a_resumed_run_gets_the_same_batches_and_weights(self):
        numbers = [(step, half) for step in range(STEPS) for half in range(2)]
        with self.server(self.config, "127.0.0.1:0") as (address,):
            wanted, weights = self.train(address, "whole")
            self.assertEqual([number for number, _ in wanted], numbers)
            # Checkpoints 2 and 4 are within an epoch. Step 5 is trained anew.
            first, _ = self.train(address, "parts", Stop(5))
            self.assertEqual(first, wanted[:10])
            for restores in (False, True):
                with self.subTest(restore_callback_states_from_checkpoint=restores):
                    shutil.rmtree(self.path("again"), ignore_errors=True)
                    shutil.copytree(self.path("parts"), self.path("again"))
                    shutil.rmtree(self.path("again/checkpoint-5"), ignore_errors=True)
                    found, resumed = self.train(
                        address, "again", resume=True,
                        restore_callback_states_from_checkpoint=restores,
                    )  # fmt: skip
                    self.assertEqual(found, wanted[8:])
                    for name, value in weights.items():
                        self.assertTrue(torch.equal(resumed[name], value), name)
            # From the checkpoint of a run that had resumed: the steps still count from 0.
            shutil.rmtree(self.path("again/checkpoint-6"))
            self.assertEqual(self.train(address, "again", resume=True)[0], wanted[8:])
            found, _ = self.train(address, "parts", resume=self.path("parts/checkpoint-2"))
            self.assertEqual(found, wanted[4:])

    def test_what_would_train_on_other_batches_is_refused(self):
        def unchecked(loader, args, of):
            return (of(batch) for batch in loader if next(loader))

        with self.server(self.config, "127.0.0.1:0") as (address,):
            with self.assertRaisesRegex(ballast.FailedPrecondition, "found 2 micro.*_steps is 3"):
                self.train(address, "three", accumulation=3)
            with self.assertRaisesRegex(ballast.FailedPrecondition, "before step 2, .* step 4"):
                self.train(address, "ahead", batches=unchecked)
            self.train(address, "without", Stop(2), position=False)
            with self.assertRaisesRegex(ballast.FailedPrecondition, "step 2 was saved without"):
                self.train(address, "without", resume=True)

    def test_accelerate_sends_a_batch(self):
        with self.server(self.config, "127.0.0.1:0") as (address,):
            with ballast.Loader(address, "language", device="cpu", array="torch") as loader:
                batch = next(loader)
                sent = send_to_device(batch, torch.device("cpu"), non_blocking=True)
                self.assertIs(type(sent), ballast.Batch)
                self.assertEqual(sent.step_totals, batch.step_totals)
                self.assertIs(sent["input_ids"], batch["input_ids"])
                # Another device; the numbers of host memory stay there.
                meta = send_to_device(batch, "meta")
                for key, value in batch.items():
                    if torch.is_tensor(value):
                        where = value.device.type if key.endswith("_host") else "meta"
                        self.assertEqual(meta[key].device.type, where, key)
                # As a list, which it does for loops that take several batches at once.
                (other,) = send_to_device([batch], "meta")
                self.assertEqual(other.samples, batch.samples)


if __name__ == "__main__":
    unittest.main()
