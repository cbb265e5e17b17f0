"""The examples of trainer_shim/python/examples/frameworks under torchrun, on CPUs: all
train alike. Skipped where BALLAST_PYTHON lacks the packages."""

import importlib.util
import os
import re
import subprocess
import sys
import unittest

from tests.harness import tools

STEPS = 3
CONFIG = """
sources:
  - {name: docs, format: webdataset, path: "docs-*.tar"}
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 25088,
        token_ids: {image: 256, video: 257, vision_start: 258, vision_end: 259,
                    im_start: 260, im_end: 261, end_of_text: 262, pad: 263}}
batch: {global: 12, micro: 4, max_tokens: 256, on_too_long: truncate_text}
topology:
  modules: {vision: {dp: 2}, language: {dp: 2}}
serve: {listen: ["127.0.0.1:0"], memory: 256MiB}
"""
FOLDER = "trainer_shim/python/examples/frameworks/"


class FrameworksTest(tools.ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in ("torch", "transformers"):
            if importlib.util.find_spec(name) is None:
                raise unittest.SkipTest(
                    "SKIPPED: %s has no %s; set BALLAST_PYTHON" % (sys.executable, name)
                )
        self = cls()
        self.ok("ballast-server", "make-corpus", "--out", cls.folder, "--samples", 32,
                "--preset", "receipts")  # fmt: skip
        cls.config = self.write("job.yaml", CONFIG)
        with open(self.path("text.jsonl"), "w", encoding="utf-8") as file:
            for i in range(64):
                file.write(
                    '{"text": "%s"}\n' % " ".join("%d and %d" % (i, i * i) for _ in range(3))
                )
        text = '  - {name: text, format: jsonl, path: "text.jsonl", weight: 7}\nmodel:'
        cls.mostly_text = self.write("text.yaml", CONFIG.replace("model:", text, 1))
        for config in (cls.config, cls.mostly_text):
            self.ok("ballast-server", "index", "--config", config)

    def losses(self, name, config=None):
        """The loss of each step of an example, run by two processes."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        with self.server(config or self.config, "127.0.0.1:0") as (address,):
            done = subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", "--standalone",
                 "--nproc-per-node", "2", FOLDER + name, "--server", address,
                 "--steps", str(STEPS)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                timeout=tools.TIMEOUT_S, check=False,
            )  # fmt: skip
        said = done.stdout.decode()
        self.assertEqual(done.returncode, 0, said)
        found = re.findall(r"^step (\d+) loss ([\d.]+)", said, re.M)
        self.assertEqual([int(step) for step, _ in found], list(range(STEPS)), said)
        return [float(loss) for _, loss in found]

    def test_all_train_alike(self):
        wanted = self.losses("torchrun_ddp.py")
        # Random weights: about the logarithm of the 264 tokens, and it falls.
        self.assertAlmostEqual(wanted[0], 5.6, delta=0.5)
        self.assertLess(wanted[-1], wanted[0])
        for name, package in (
            ("torchrun_fsdp2.py", "torch"),
            ("with_accelerate.py", "accelerate"),
            ("with_lightning.py", "lightning"),
            ("with_trainer.py", "accelerate"),
        ):
            with self.subTest(name):
                if importlib.util.find_spec(package) is None:
                    self.skipTest("SKIPPED: there is no " + package)
                for step, loss in enumerate(self.losses(name)):
                    # The Trainer rounds what it logs.
                    self.assertAlmostEqual(loss, wanted[step], delta=2e-3, msg=name)

    def test_mostly_text(self):
        """Ranks without an image beside others, and micro-batches without one on any rank."""
        plan = self.json_lines("ballast-server", "plan", "--config", self.mostly_text, "--step", 0,
                               "--steps", STEPS, "--json")  # fmt: skip
        micro_batches = [each for step in plan for each in step["micro_batches"]]
        self.assertTrue(any("dummies" in each for each in micro_batches))
        images = [sum(sample["images"] for sample in each["samples"]) for each in micro_batches]
        self.assertIn(0, images)
        wanted = self.losses("torchrun_ddp.py", self.mostly_text)
        for step, loss in enumerate(self.losses("torchrun_fsdp2.py", self.mostly_text)):
            self.assertAlmostEqual(loss, wanted[step], delta=2e-3)


if __name__ == "__main__":
    unittest.main()
