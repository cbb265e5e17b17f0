"""examples/finetune_qwen.py: trains, stops, and resumes with another number of processes
at exactly the next sample."""

import csv
import os
import subprocess
import sys
import unittest

from tests.harness import tools

PROGRAM = "trainer_shim/python/examples/finetune_qwen.py"


class FinetuneTest(tools.ToolTest):
    def train(self, world, out, *options):
        """Runs the example; returns the losses of all steps so far."""
        programs = os.path.dirname(tools.program("ballast-server"))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
                       "PATH": programs + ":" + os.environ["PATH"]}  # fmt: skip
        command = [sys.executable]
        if world > 1:
            command += [
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                str(world),
            ]
        done = subprocess.run(
            [*command, PROGRAM, "--out", self.path(out), *options], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=tools.TIMEOUT_S, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        with open(self.path(out, "losses.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([int(row["step"]) for row in rows], list(range(len(rows))))
        for row in rows:
            self.assertGreaterEqual(float(row["heaviest_over_mean"]), 1 - 1e-9)
        return [float(row["loss"]) for row in rows]

    def test_resumes_with_another_number_of_processes(self):
        whole = self.train(1, "whole", "--steps", "5")
        self.assertEqual(len(whole), 5)
        self.assertLess(whole[-1], whole[0])
        first = self.train(2, "parts", "--steps", "2")
        self.assertEqual(len(first), 2)
        both = self.train(3, "parts", "--steps", "5")
        self.assertEqual(len(both), 5)
        # Another sample in a step would change its loss by far more.
        for one, other in zip(whole, both):
            self.assertAlmostEqual(one, other, delta=2e-3)
        with open(self.path("parts/losses.svg"), encoding="utf-8") as file:
            self.assertIn("<polyline", file.read())

    def test_a_checkpoints_folder(self):
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        # Byte-level BPE without merges, with Qwen's special tokens.
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        names = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>",
                 "<|im_start|>", "<|im_end|>", "<|endoftext|>"]  # fmt: skip
        tokenizer.add_special_tokens(names)
        sys.path.insert(0, os.path.dirname(PROGRAM))
        from frameworks.small_qwen import model_for

        ids = {key: tokenizer.token_to_id(name) for key, name in zip(
            ("image", "video", "vision_start", "vision_end", "im_start", "im_end", "end"), names
        )}  # fmt: skip
        model = model_for(
            {"model": {"token_ids": ids, "patch": 14, "merge": 2, "temporal_patch": 2}}
        )
        folder = self.path("checkpoint")
        model.save_pretrained(folder)
        tokenizer.save(folder + "/tokenizer.json")
        with open(folder + "/preprocessor_config.json", "w", encoding="utf-8") as file:
            file.write('{"min_pixels": 3136, "max_pixels": 25088, "patch_size": 14}')
        losses = self.train(1, "tuned", "--model", folder, "--steps", "2", "--batch", "8")
        self.assertEqual(len(losses), 2)


if __name__ == "__main__":
    unittest.main()
