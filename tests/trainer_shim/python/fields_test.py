"""Numbers of records, as a training loop gets them."""

import json
import types
import unittest

import ballast
import numpy
from ballast.adapters import (
    huggingface,
    huggingface_audio,
    huggingface_families,
    megatron_bridge,
)
from tests.harness import tools

CONFIG = """
sources:
  - name: chat
    format: jsonl
    path: chat.jsonl
    fields:
      advantage: float32
      channel: {type: int32, default: 7}
      weight: {type: float32, per: turn, default: 1}
model: {profile: qwen2_5_vl, chat_template: chatml}
batch: {global: 8, micro: 4}
topology: {modules: {language: {dp: 1}}}
balance: {cost: {language: {linear: 1}}}
serve: {listen: ["127.0.0.1:0"], threads: 1, memory: 64MiB}
"""


class FieldsTest(tools.ToolTest):
    def setUp(self):
        super().setUp()
        with open(self.path("chat.jsonl"), "w", encoding="utf-8") as file:
            for i in range(16):
                turns = [
                    {"role": "user", "content": "q"},
                    {"role": "assistant", "content": "a" * (i + 1), "weight": i % 4 / 4},
                ]
                record = {"messages": turns, "advantage": i / 8, "channel": i}
                if i % 3 == 0:
                    del record["channel"]
                file.write(json.dumps(record) + "\n")
        self.config = self.write("fields.yaml", CONFIG)
        self.ok("ballast-server", "index", "--config", self.config)

    def test_the_batch_has_them_by_name(self):
        seen = 0
        with self.server(self.config, "127.0.0.1:0") as (address,):
            with ballast.Loader(
                address, "language", device="cpu", array="numpy", steps=2
            ) as loader:
                for batch in map(lambda batch: batch.clone(), loader):
                    self.assertEqual(set(batch.fields), {"advantage", "channel", "weight"})
                    self.assertNotIn("fields.advantage", batch)
                    numbers = [sample.ordinal for sample in batch.samples]
                    self.assertEqual(batch.fields["advantage"].dtype, numpy.float32)
                    self.assertEqual(batch.fields["advantage"].tolist(), [i / 8 for i in numbers])
                    self.assertEqual(
                        batch.fields["channel"].tolist(),
                        [7 if i % 3 == 0 else i for i in numbers],
                    )
                    self.assertEqual(batch.fields["weight"].shape, batch["input_ids"].shape)
                    bounds = batch["cu_seqlens_padded"]
                    for place, i in enumerate(numbers):
                        mask = batch["loss_mask"][0, bounds[place] : bounds[place + 1]]
                        # The answer and its end.
                        learnt = 0 if i % 4 == 0 else i + 2
                        self.assertEqual(sorted(mask)[-learnt:] if learnt else [],
                                         [i % 4 / 4] * learnt)  # fmt: skip
                        self.assertEqual(mask.sum(), learnt * (i % 4) / 4)
                    seen += len(numbers)
        self.assertEqual(seen, 16)

    def test_whose_loss_would_not_weigh_refuses_weights(self):
        """The model's own loss counts labels, and loss_mask is left out."""
        family = huggingface_families.Family(
            types.SimpleNamespace(model_type="llava", image_token_index=7), profile="llava1_5"
        )
        adapters = (
            huggingface.packed, huggingface.padded, huggingface.unpacked, family.packed,
            family.padded, family.unpacked, huggingface_audio.voxtral,
        )  # fmt: skip
        with self.server(self.config, "127.0.0.1:0") as (address,):
            with ballast.Loader(address, "language", device="cpu", array="numpy") as loader:
                batch = next(loader)
                for adapter in adapters:
                    with (
                        self.subTest(adapter),
                        self.assertRaisesRegex(
                            ballast.FailedPrecondition,
                            r'weight.*each label alike.*fields\.pop\("weight"',
                        ),
                    ):
                        adapter(batch)
        self.assertIs(megatron_bridge.forward_inputs(batch)["loss_mask"], batch["loss_mask"])
        batch.fields.pop("weight")
        labels = huggingface.packed(batch)["labels"]
        self.assertTrue((labels[0, 1:] == batch["labels"][0, :-1]).all())

    def test_inspect_prints_them(self):
        found = json.loads(
            self.ok(
                "ballast-server", "inspect", "sample", "--config", self.config, "--position", 0
            )  # fmt: skip
        )
        self.assertEqual(set(found["fields"]), {"advantage", "channel", "weight"})
        self.assertEqual(len(found["fields"]["weight"]), len(found["input_ids"]))
        self.assertIsInstance(found["fields"]["advantage"], float)


if __name__ == "__main__":
    unittest.main()
