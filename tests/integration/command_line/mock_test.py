"""Every command on a configuration of mock sources only, without data files."""

import os
import unittest

from tests.harness import tools

CONFIG = """
sources:
  - name: mock
    format: mock
    lengths: {mode: lognormal, min: 100, max: 2000, mean: 600, sigma: 1.1, count: 500}
    images: {min: 0, max: 2, pixels: {min: 3000, max: 60000, mean: 30000, sigma: 0.5}}
  - {name: listed, format: mock, lengths: {mode: file, path: lengths.csv}}
model: {profile: qwen2_5_vl}
order: {shuffle: false}
batch: {global: 16, micro: 8, max_tokens: 2000}
topology:
  modules:
    vision: {dp: 2, pp: 2}
    language: {dp: 4, tp: 2, pp: 2, cp: 2}
serve: {listen: ["127.0.0.1:0"]}
"""


class MockTest(tools.ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config = os.path.join(cls.folder, "mock.yaml")
        for name, text in (
            ("mock.yaml", CONFIG),
            ("lengths.csv", "length\n" + "300\n400\n" * 50),
        ):
            with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as file:
                file.write(text)

    def test_index_says_that_there_is_none(self):
        text = self.ok("ballast-server", "index", "--config", self.config)
        self.assertIn("mock: 500 samples, drawn: there is no index to build", text)
        self.assertIn("listed: 100 samples, drawn", text)
        self.assertEqual(sorted(os.listdir(self.folder))[:1], ["lengths.csv"])

    def test_lengths_are_those_that_inspect_lengths_prints(self):
        [drawn] = self.json_lines(
            "ballast-server", "inspect", "lengths", "--mode", "lognormal",
            "--min", 100, "--max", 2000, "--mean", 600, "--sigma", 1.1,
            "--count", 500,
        )  # fmt: skip
        steps = self.json_lines(
            "ballast-server", "plan", "--config", self.config,
            "--step", 0, "--steps", 10, "--json",
        )  # fmt: skip
        seen = 0
        for step in steps:
            for micro_batch in step["micro_batches"]:
                for sample in micro_batch["samples"]:
                    source, number = sample["sample"].split(":")
                    number = int(number)
                    if source == "listed":
                        self.assertEqual(sample["tokens"], (300, 400)[number % 2])
                        continue
                    self.assertEqual(
                        sample["tokens"], max(drawn[number], self.least(sample))
                    )
                    seen += 1
        self.assertGreater(seen, 60)

    @staticmethod
    def least(sample):
        """Tokens of the sample's images, and one token of text."""
        return sample["patches"] // 4 + 2 * sample["images"] + 1

    def test_ranks_at_all_places_go_through_the_same_steps(self):
        def lines(address, *place):
            found = self.json_lines(
                "ballast-rank", "--server", address, "--steps", 2, "--world",
                "all", "--json", *place,
            )  # fmt: skip
            return {
                (x["step"], x["micro_batch"], x["module"], x["dp_rank"]): x
                for x in found
            }

        with self.server(self.config, "127.0.0.1:0") as [address]:
            first = lines(address)
            self.assertEqual(len(first), 2 * 2 * (2 + 4))
            for place in (
                ("--tp-rank", 1),
                ("--cp-rank", 1),
                ("--pp-rank", 1),
                ("--tp-rank", 1, "--pp-rank", 1, "--cp-rank", 1),
            ):
                there = lines(address, *place)
                self.assertLessEqual(set(there), set(first))
                for key, line in there.items():
                    whole = first[key]
                    for name in ("samples", "tokens", "padded_tokens", "images"):
                        self.assertEqual(line[name], whole[name])
                    # Only tensor-parallel peers have the same tensors.
                    self.assertEqual(
                        line["digest"] == whole["digest"], place == ("--tp-rank", 1)
                    )
                    if key[2] == "vision":  # its tp and cp are 1
                        self.assertEqual(place, ("--pp-rank", 1))
                        self.assertEqual(line["bytes_read"], 0)
            message = self.error(
                "ballast-rank", "--server", address, "--steps", 1, "--module",
                "language", "--dp-rank", 0, "--cp-rank", 2,
            )  # fmt: skip
            self.assertIn("2 context-parallel ranks; rank 2", message)


if __name__ == "__main__":
    unittest.main()
