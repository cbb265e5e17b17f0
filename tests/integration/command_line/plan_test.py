"""Compares plan --json with the definitions of its numbers."""

import collections
import math
import unittest

from tests.harness import tools

DP = {"vision": 2, "language": 4}
GLOBAL, MICRO = 16, 8
STEPS = tools.SAMPLES // GLOBAL


class PlanTest(tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.steps = cls().json_lines(
            "ballast-server", "plan", "--config", cls.config,
            "--step", 0, "--steps", STEPS, "--json",
        )  # fmt: skip

    def micro_batches(self):
        for step in self.steps:
            yield from step["micro_batches"]

    def test_keys(self):
        self.assertEqual([s["step"] for s in self.steps], list(range(STEPS)))
        for step in self.steps:
            self.keys(step, "step", "fingerprint", "micro_batches", "totals")
            self.assertRegex(step["fingerprint"], "^[0-9a-f]{32}$")
            self.assertEqual(len(step["micro_batches"]), GLOBAL // MICRO)
            self.keys(
                step["totals"],
                "tokens", "tokens_squared", "label_tokens", "patches", "images",
            )  # fmt: skip
        for micro_batch in self.micro_batches():
            self.keys(micro_batch, "samples", "load")
            self.keys(micro_batch["load"], *DP)
            for module, load in micro_batch["load"].items():
                self.keys(load, "before", "after")
                self.assertEqual(len(load["before"]), DP[module])
                self.assertEqual(len(load["after"]), DP[module])
            for sample in micro_batch["samples"]:
                self.keys(
                    sample,
                    "position", "sample", "source", "images", "patches", "tokens",
                    "label_tokens", "cost", "reader", "owner", "slot", "place",
                )  # fmt: skip
                for key in ("cost", "reader", "owner"):
                    self.keys(sample[key], *DP)

    def test_every_position_once_and_every_sample_once_an_epoch(self):
        position = 0
        names = collections.Counter()
        for micro_batch in self.micro_batches():
            for sample in micro_batch["samples"]:
                self.assertEqual(sample["position"], position)
                names[sample["sample"]] += 1
                position += 1
        self.assertEqual(names, {f"docs:{i}": 1 for i in range(tools.SAMPLES)})

    def test_costs_and_loads(self):
        for micro_batch in self.micro_batches():
            before = {m: [0] * dp for m, dp in DP.items()}
            after = {m: [0] * dp for m, dp in DP.items()}
            for i, sample in enumerate(micro_batch["samples"]):
                patches, images = sample["patches"], sample["images"]
                tokens, costs = sample["tokens"], sample["cost"]
                self.assertEqual(costs["language"], 3 * tokens + tokens**2)
                # Towers attend within an image: test_inspect_sample_agrees knows
                # the patches of each.
                quadratic = costs["vision"] - 2 * patches
                if images <= 1:
                    self.assertEqual(quadratic, patches**2)
                else:
                    self.assertLess(quadratic, patches**2)
                    self.assertGreaterEqual(quadratic * images, patches**2)
                for module, dp in DP.items():
                    self.assertEqual(sample["reader"][module], i * dp // MICRO)
                    cost = sample["cost"][module]
                    before[module][sample["reader"][module]] += cost
                    after[module][sample["owner"][module]] += cost
            for module, load in micro_batch["load"].items():
                self.assertEqual(load["before"], before[module])
                self.assertEqual(load["after"], after[module])

    def test_balance_helps_and_modules_stay_paired(self):
        for micro_batch in self.micro_batches():
            samples = micro_batch["samples"]
            order = sorted(samples, key=lambda s: s["place"])
            self.assertEqual([s["place"] for s in order], list(range(MICRO)))
            for module in DP:
                owners = [s["owner"][module] for s in order]
                self.assertEqual(owners, sorted(owners))
            for sample in samples:
                self.assertEqual(sample["owner"]["language"] // 2, sample["owner"]["vision"])

        def straggling(when):
            return math.fsum(
                max(load[when]) for m in self.micro_batches() for load in m["load"].values()
            )

        self.assertLess(straggling("after"), straggling("before"))

    def test_totals(self):
        for step in self.steps:
            samples = [s for m in step["micro_batches"] for s in m["samples"]]
            self.assertEqual(
                step["totals"],
                {
                    "tokens": sum(s["tokens"] for s in samples),
                    "tokens_squared": sum(s["tokens"] ** 2 for s in samples),
                    "label_tokens": sum(s["label_tokens"] for s in samples),
                    "patches": sum(s["patches"] for s in samples),
                    "images": sum(s["images"] for s in samples),
                },
            )

    def config_with(self, name, order):
        with open(self.config, encoding="utf-8") as file:
            return self.write(name, file.read() + "order: %s\n" % order)

    def test_a_plan_file_plays_back(self):
        plan = self.path("plan.parquet")
        done = tools.run(
            "ballast-server", "plan", "--config", self.config, "--export", plan,
            "--steps", "1..2",
        )  # fmt: skip
        if b"--config=noarrow" in done.stderr:
            self.skipTest("this build has no Parquet")
        self.assertIn(b"wrote %d rows of steps 1 to 2" % (2 * GLOBAL), done.stdout)
        planned = self.config_with("planned.yaml", "{plan: %s}" % plan)
        steps = self.json_lines(
            "ballast-server", "plan", "--config", planned, "--step", 0, "--steps", 3, "--json"
        )
        for found, wanted in zip(steps, self.steps):
            self.assertNotEqual(found.pop("fingerprint"), wanted["fingerprint"])
            self.assertEqual(found, {k: v for k, v in wanted.items() if k != "fingerprint"})
        self.assertIn(
            "the data end before step 3 (the end of order.plan)",
            self.error("ballast-server", "plan", "--config", planned, "--step", 3),
        )
        self.assertRegex(
            self.ok("ballast-server", "plan", "--diff", self.config, planned),
            r"(?s)the data differ from step 1 on.*1  data  order\.plan",
        )
        # Where the numbers are those of other samples by now.
        self.ok("ballast-server", "make-corpus", "--out", self.path("other"), "--samples",
                 tools.SAMPLES, "--seed", 2)  # fmt: skip
        with open(planned, encoding="utf-8") as file:
            text = file.read().replace('"docs-*.tar"', '"other/docs-*.tar", index: other.index')
        other = self.write("other.yaml", text)
        self.ok("ballast-server", "index", "--config", other)
        self.assertRegex(
            self.error("ballast-server", "plan", "--config", other, "--step", 1),
            r"plan.parquet: row 0: sample \d+ of source docs has another text",
        )
        said = self.ok(
            "ballast-server", "pack", "--config", self.config, "--tokens", 8192, "--packs", 4,
            "--out", self.path("packs.parquet"),
        )  # fmt: skip
        self.assertRegex(said, r"packed \d+ samples into \d+ packs of 8192 tokens, .* fill \d+")

    def split_config(self):
        """The configuration with both modules on 4 ranks and placement `split`."""
        with open(self.config, encoding="utf-8") as file:
            text = file.read()
        text = text.replace("vision: {dp: 2}", "vision: {dp: 4}")
        text = text.replace("balance:", "balance:\n  placement: split")
        return self.write("split.yaml", text)

    def test_split_placement_counts_the_embeddings_that_move(self):
        steps = self.json_lines(
            "ballast-server", "plan", "--config", self.split_config(),
            "--step", 0, "--steps", STEPS, "--json",
        )  # fmt: skip
        moved = 0
        for step in steps:
            samples = [s for m in step["micro_batches"] for s in m["samples"]]
            apart = sum(
                s["patches"] // 4 for s in samples if s["owner"]["vision"] != s["owner"]["language"]
            )
            self.assertEqual(
                step["totals"]["embeddings_moved"],
                {"tokens_within_servers": apart, "tokens_between_servers": 0},
            )
            moved += apart
        self.assertGreater(moved, 0)
        text = self.ok("ballast-server", "plan", "--config", self.split_config(), "--step", 0)
        self.assertRegex(
            text.splitlines()[-1],
            r"^embeddings moved: \d+ tokens within servers, 0 between servers$",
        )

    def test_inspect_placement_compares_the_choices(self):
        config = self.split_config()
        (found,) = self.json_lines(
            "ballast-server", "inspect", "placement", "--config", config,
            "--steps", 2, "--width", 8, "--json",
        )  # fmt: skip
        self.keys(found, "sum", "phases", "split")
        for choice in found.values():
            self.keys(choice, "time", "max_over_mean", "image_tokens", "embeddings_moved")
            time = choice["time"]
            self.assertLessEqual(time["least"], time["wait_a_micro_batch"])
            self.assertLessEqual(time["wait_a_micro_batch"], time["wait_a_module"])
        for paired in ("sum", "phases"):
            self.assertEqual(found[paired]["embeddings_moved"]["bytes"], 0)
        moved = found["split"]["embeddings_moved"]
        self.assertEqual(moved["bytes"], int(moved["tokens_within_servers"] * 8 * 2))
        # The times of split are those of its plan.
        steps = self.json_lines(
            "ballast-server", "plan", "--config", config, "--step", 0, "--steps", 2, "--json"
        )
        by_module = math.fsum(
            max(load["after"])
            for step in steps
            for micro_batch in step["micro_batches"]
            for load in micro_batch["load"].values()
        )
        self.assertEqual(found["split"]["time"]["wait_a_module"], by_module / 2)
        rows = self.ok("ballast-server", "inspect", "placement", "--config", config).splitlines()
        self.assertEqual([row.split()[0] for row in rows[2:5]], ["sum", "phases", "split"])

    def test_inspect_placement_names_what_the_configuration_rules_out(self):
        (found,) = self.json_lines(
            "ballast-server", "inspect", "placement", "--config", self.config, "--json"
        )
        self.assertIn("vision dp 2, language dp 4", found["split"]["refused"])
        self.assertIn("time", found["phases"])

    def test_table(self):
        text = self.ok("ballast-server", "plan", "--config", self.config, "--step", 1)
        lines = text.splitlines()
        step = self.steps[1]
        self.assertEqual(lines[0], f"step 1  fingerprint {step['fingerprint']}")
        rows = [line.split() for line in lines[3:-1]]
        self.assertEqual(
            [row[:3] for row in rows],
            [[str(m), module, str(MICRO)] for m in range(2) for module in DP],
        )
        totals = step["totals"]
        self.assertEqual(
            lines[-1],
            f"totals: {totals['tokens']} tokens, {totals['label_tokens']} label "
            f"tokens, {totals['patches']} patches, {totals['images']} images",
        )

    def test_inspect_sample_agrees(self):
        for sample in self.steps[1]["micro_batches"][0]["samples"][:4]:
            position = sample["position"]
            (built,) = self.json_lines(
                "ballast-server", "inspect", "sample", "--config", self.config,
                "--position", position,
            )  # fmt: skip
            self.keys(
                built,
                "position", "sample", "step", "micro_batch", "tokens",
                "label_tokens", "images", "cost", "input_ids", "labels",
                "position_ids",
            )  # fmt: skip
            for key in ("position", "sample", "tokens", "label_tokens", "cost"):
                self.assertEqual(built[key], sample[key])
            self.assertEqual((built["step"], built["micro_batch"]), (1, 0))
            ids, labels = built["input_ids"], built["labels"]
            self.assertEqual(len(ids), sample["tokens"])
            self.assertEqual(len(built["position_ids"]), 3)
            supervised = [i for i, label in enumerate(labels) if label != -100]
            self.assertEqual(len(supervised), sample["label_tokens"])
            for i in supervised:
                self.assertEqual(labels[i], ids[i + 1])
            self.assertEqual(len(built["images"]), sample["images"])
            tokens, squares = 0, 0
            for image in built["images"]:
                self.keys(image, "resized_h", "resized_w", "grid_thw", "image_tokens")
                _, h, w = image["grid_thw"]
                self.assertEqual((14 * h, 14 * w), (image["resized_h"], image["resized_w"]))
                self.assertEqual(image["image_tokens"], h * w // 4)
                tokens += image["image_tokens"]
                squares += (h * w) ** 2
            self.assertEqual(ids.count(151655), tokens)
            self.assertEqual(sample["patches"], 4 * tokens)
            self.assertEqual(sample["cost"]["vision"], 2 * 4 * tokens + squares)

    def test_errors(self):
        message = self.error("ballast-server", "plan", "--config", self.config, "--step", 2**64 - 1)
        self.assertIn(f"step {2**64 - 1}", message)
        missing = self.path("missing.yaml")
        message = self.error("ballast-server", "plan", "--config", missing, "--step", 0)
        self.assertIn(f"{missing}: cannot be opened: No such file", message)
        self.assertIn(f"`ballast-server init FOLDER --out {missing}` writes one", message)
        message = self.error(
            "ballast-server", "plan", "--config", self.config, "--step", -1, status=2
        )
        self.assertIn("--step: found -1", message)

    def test_every_fault_of_a_configuration_at_once(self):
        config = self.write(
            "faults.yaml",
            tools.CONFIG.replace("micro: 8", "mirco: 8")
            .replace("dp: 2", "dp: two")
            .replace("balance:", "blance:"),
        )
        lines = tools.CONFIG.splitlines()

        def line_of(text):
            return 1 + next(i for i, line in enumerate(lines) if text in line)

        message = self.error("ballast-server", "plan", "--config", config, "--step", 0)
        for line, key in (
            (line_of("batch"), "batch.mirco"),
            (line_of("batch"), "batch.micro"),
            (line_of("dp: 2"), "topology.modules.vision.dp"),
            (line_of("balance"), "blance"),
        ):
            self.assertIn(f"\nballast-server: {config}:{line}: {key}: ", "\n" + message)
        self.assertIn("did you mean micro?", message)


if __name__ == "__main__":
    unittest.main()
