"""Lightning's own loop over loaders: its checkpoints, and validations within an epoch."""

import os
import unittest
import warnings

import lightning
import torch

import ballast
from tests.harness import tools

# 48 samples of train, 8 a step in two micro-batches: 6 steps. 20 of valid: 3 steps of 8.
CONFIG = """
sources:
  - name: mock
    format: mock
    lengths: {mode: lognormal, min: 16, max: 64, mean: 40, sigma: 0.5, count: 48}
    images: {min: 0, max: 1, pixels: {min: 784, max: 3136, mean: 2000, sigma: 0.5}}
  - name: held_out
    format: mock
    split: valid
    lengths: {mode: lognormal, min: 16, max: 64, mean: 40, sigma: 0.5, count: 20}
    images: {min: 0, max: 1, pixels: {min: 784, max: 3136, mean: 2000, sigma: 0.5}}
order: {epochs: 1}
model: {profile: qwen2_5_vl, tokenizer: bytes}
batch: {global: 8, micro: 4, max_tokens: 256}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
serve: {listen: ["127.0.0.1:0"]}
"""


class Model(lightning.LightningModule):
    """Notes the batches that it gets."""

    def __init__(self, estimates, stop_at=None):
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Linear(1, 1)
        self.estimates, self.stop_at = estimates, stop_at
        self.trained, self.validated = [], []

    def transfer_batch_to_device(self, batch, device, dataloader_idx):
        return batch

    def training_step(self, batch, _):
        self.trained.append((batch.step, batch.micro_batch))
        self.manual_backward(self.weight(torch.ones(1)).sum())
        if batch.micro_batch + 1 == batch.num_micro_batches:
            self.optimizers().step()
            if batch.step == self.stop_at:
                self.trainer.save_checkpoint(os.path.join(self.trainer.default_root_dir, "a.ckpt"))
                self.trainer.should_stop = True

    def on_validation_epoch_start(self):
        self.validated.append([])

    def validation_step(self, batch, _):
        self.validated[-1] += [s.name for s in batch.samples if not s.repeated]

    def configure_optimizers(self):
        if self.estimates:
            self.steps = self.trainer.estimated_stepping_batches
        return torch.optim.SGD(self.parameters(), lr=0.1)


class LightningTest(tools.ToolTest):
    def setUp(self):
        warnings.simplefilter("ignore")

    def fit(self, address, model, ckpt_path=None, validates=False, **options):
        valid = None
        with ballast.Loader(address, device="cpu", array="torch") as train:
            if validates:
                valid = ballast.Loader(address, device="cpu", array="torch", split="valid")
                self.addCleanup(valid.close)
            trainer = lightning.Trainer(
                accelerator="cpu", devices=1, max_epochs=1, default_root_dir=self.folder,
                use_distributed_sampler=False, logger=False, enable_checkpointing=False,
                enable_progress_bar=False, enable_model_summary=False, **options,
            )  # fmt: skip
            trainer.fit(model, train, valid, ckpt_path=ckpt_path, weights_only=False)
        return model

    def test_a_resumed_run_trains_each_step_once(self):
        steps = [(step, half) for step in range(6) for half in range(2)]
        config = self.write("job.yaml", CONFIG)
        with self.server(config, "127.0.0.1:0") as (address,):
            for estimates in (False, True):
                with self.subTest(estimates=estimates):
                    first = self.fit(address, Model(estimates, stop_at=2))
                    self.assertEqual(first.trained, steps[:6])
                    second = self.fit(address, Model(estimates), self.path("a.ckpt"))
                    self.assertEqual(second.trained, steps[6:])

    def test_each_validation_of_an_epoch_has_each_sample_once(self):
        wanted = sorted("held_out:%d" % i for i in range(20))
        config = self.write("valid.yaml", CONFIG)
        with self.server(config, "127.0.0.1:0") as (address,):
            model = self.fit(address, Model(True), validates=True, val_check_interval=4)
            check, *validations = model.validated
            self.assertEqual(len(check), 2 * 4)  # two batches before the training
            self.assertEqual(len(validations), 12 // 4)
            for names in validations:
                self.assertEqual(sorted(names), wanted)
            self.assertEqual(len(model.trained), 12)


if __name__ == "__main__":
    unittest.main()
