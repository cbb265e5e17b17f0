"""Preference pairs with images, as a training loop gets them and as rows."""

import json
import unittest

import ballast
import numpy
from ballast.adapters import (
    bridge_qwen3_vl, bridge_vlm, huggingface, megatron_bridge, megatron_core, megatron_llava,
    megatron_lm, padded, preferences,
)  # fmt: skip
from tests.harness import tools

CONFIG = """
sources:
  - {name: pairs, format: jsonl, path: pairs.jsonl, pairs: true, fields: {margin: float32}}
%s
order: {shuffle: false}
model: {profile: qwen2_5_vl, chat_template: chatml}
batch: {global: 4, micro: 4}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
balance: {equal_count: true}
packing: {mode: %s}
serve: {memory: 64MiB}
"""
PAIRS = 8


class PreferencesTest(tools.ToolTest):
    def setUp(self):
        super().setUp()
        with open(self.path("a.png"), "wb") as file:
            file.write(tools.picture())
        with open(self.path("pairs.jsonl"), "w", encoding="utf-8") as file:
            for i in range(PAIRS):
                row = {"prompt": "Q", "chosen": "y" * (i + 1), "rejected": "no", "margin": i / 4}
                if i % 2:
                    row["images"] = ["a.png"] * (i // 2 + 1)
                file.write(json.dumps(row) + "\n")
        self.write("chat.jsonl", json.dumps({"messages": [
            {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]}) + "\n")  # fmt: skip

    def batches(self, mode, more=""):
        config = self.write(mode + ".yaml", CONFIG % (more, mode))
        self.ok("ballast-server", "index", "--config", config)
        with self.server(config, "127.0.0.1:0") as (address,):
            with ballast.Loader(address, device="cpu", array="numpy", steps=2) as loader:
                for batch in loader:
                    batch.images_per_sample  # of this step
                    yield batch.clone()

    def test_the_batch_has_two_sequences_a_sample(self):
        for mode in ("shard", "padded"):
            for batch in self.batches(mode):
                samples = len(batch.samples)
                self.assertEqual(batch["pair"].tolist(), [0, 1] * samples)
                numbers = [sample.ordinal for sample in batch.samples]
                self.assertEqual(
                    batch.fields["margin"].tolist(), [i / 4 for i in numbers for _ in range(2)]
                )
                # Each image once, whatever sees it.
                images = [i // 2 + 1 if i % 2 else 0 for i in numbers]
                self.assertEqual(batch.images_per_sample, images)
                self.assertEqual(len(batch["image_grid_thw"]), sum(images))
                self.assertEqual(batch.totals.samples, samples)

    def test_rows_are_chosen_then_rejected(self):
        found = {mode: list(self.batches(mode)) for mode in ("shard", "padded")}
        for packed, rows in zip(found["shard"], found["padded"]):
            one, other = (preferences.rows(batch, pad=7) for batch in (packed, rows))
            count = len(packed.samples)
            self.assertEqual(one["input_ids"].shape[0], 2 * count)
            for key in ("attention_mask", "completion_mask", "pixel_values", "image_grid_thw"):
                numpy.testing.assert_array_equal(one[key], other[key], key)
            for row in range(2 * count):
                number = packed.samples[row % count].ordinal
                learnt = one["input_ids"][row][one["completion_mask"][row] == 1].tolist()
                answer = "y" * (number + 1) if row < count else "no"
                self.assertEqual("".join(map(chr, learnt[:-1])), answer)
                self.assertEqual(learnt[-1], 151645)
            half = len(one["image_grid_thw"]) // 2
            numpy.testing.assert_array_equal(one["image_grid_thw"][:half], packed["image_grid_thw"])
            numpy.testing.assert_array_equal(one["image_grid_thw"][half:], packed["image_grid_thw"])
            rows_of_patches = len(packed["pixel_values"])
            for part in (
                one["pixel_values"][:rows_of_patches],
                one["pixel_values"][rows_of_patches:],
            ):
                numpy.testing.assert_array_equal(part, packed["pixel_values"])
            # As many placeholders as the images twice have merged patches.
            patches = one["image_grid_thw"].prod(axis=1).sum()
            self.assertEqual((one["input_ids"] == 151655).sum() * 4, patches)

    def test_who_would_learn_the_rejected_answers_is_refused(self):
        def llava(batch):
            return megatron_llava.forward_inputs(batch, image_token=151655, tokens_per_tile=4)

        of_text = (huggingface.padded, lambda batch: padded.rows(batch, pad=0))
        of_packs = (
            huggingface.packed, huggingface.unpacked, megatron_core.packed_seq_params,
            megatron_core.get_batch,
        )  # fmt: skip
        of_trainers = (megatron_bridge.forward_inputs, megatron_lm.batch_list, llava)
        for mode, functions in (("shard", of_packs + of_text), ("padded", of_text)):
            config = self.write(mode + ".yaml", CONFIG % ("", mode))
            self.ok("ballast-server", "index", "--config", config)
            with self.server(config, "127.0.0.1:0") as (address,):
                with ballast.Loader(address, device="cpu", array="numpy", steps=1) as loader:
                    of_loader = (
                        megatron_bridge.Mimo(loader, dummy_image="drop"),
                        bridge_vlm.Vlm(loader, "qwen2_5_vl"), bridge_qwen3_vl.Qwen3VlStep(loader),
                    )  # fmt: skip
                    batch = next(iter(loader)).clone()
            for adapter in functions + of_trainers + of_loader:
                with self.assertRaisesRegex(ballast.FailedPrecondition, "found preference pairs"):
                    adapter(batch)

    def test_samples_of_one_sequence_have_no_row(self):
        more = (
            "  - {name: chat, format: jsonl, path: chat.jsonl, "
            "fields: {margin: {type: float32, default: 0}}}"
        )
        batches = list(self.batches("shard", more))
        self.assertIn(-1, [kind for batch in batches for kind in batch["pair"].tolist()])
        mixed = next(batch for batch in batches if -1 in batch["pair"].tolist())
        with self.assertRaisesRegex(ballast.FailedPrecondition, "no preference pairs"):
            preferences.rows(mixed, pad=0)


if __name__ == "__main__":
    unittest.main()
