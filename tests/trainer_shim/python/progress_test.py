"""len(loader), loader.step and loader.report(), against a server over mock data."""

import importlib.util
import json
import unittest

import ballast
from ballast._progress import batches_between
from tests.harness import tools

# 96 samples, 16 a step: 6 steps of 2 micro-batches in an epoch, for 2 epochs.
CONFIG = """
sources:
  - name: mock
    format: mock
    lengths: {mode: lognormal, min: 16, max: 64, mean: 40, sigma: 0.5, count: 96}
    images: {min: 0, max: 2, pixels: {min: 784, max: 3136, mean: 2000, sigma: 0.5}}
order: {epochs: %d}
model: {profile: qwen2_5_vl, tokenizer: bytes}
batch: {global: 16, micro: 8, max_tokens: 256}
topology:
  modules: {vision: {dp: 2}, language: {dp: 2}}
serve: {listen: ["127.0.0.1:0"]}
"""


class ProgressTest(tools.ToolTest):
    def loader(self, address, rank=0, **options):
        return ballast.Loader(address, dp_rank=rank, device="cpu", array="dlpack", **options)

    def test_the_length_is_the_number_of_batches(self):
        config = self.write("ends.yaml", CONFIG % 2)
        with self.server(config, "127.0.0.1:0") as (address,):
            with self.loader(address) as loader:
                self.assertTrue(loader)
                self.assertEqual(len(loader), 24)
                self.assertEqual(sum(1 for _ in loader), 24)
                self.assertEqual(len(loader), 24)
            for options, length in [({"steps": 4}, 8), ({"steps": 99}, 24),
                                    ({"start_step": 9}, 6), ({"start_step": 9, "steps": 1}, 2)]:  # fmt: skip
                with self.subTest(options), self.loader(address, **options) as loader:
                    self.assertEqual(len(loader), length)
                    self.assertEqual(sum(1 for _ in loader), length)

    def test_one_that_continues_counts_the_whole_run(self):
        """Lightning and the Trainer take off the batches that they have had: by a length of
        those that are left they would leave out as many of the last."""
        config = self.write("ends.yaml", CONFIG % 2)
        with self.server(config, "127.0.0.1:0") as (address,):
            with self.loader(address) as first:
                while first.next_step < 5:
                    next(first)
                state = first.state_dict()
            with self.loader(address, state_dict=state) as second:
                self.assertEqual(len(second), 24)
                self.assertEqual(second.step, 5)
                self.assertEqual(sum(1 for _ in second), 14)
            with self.loader(address, state_dict=state, steps=3) as second:
                self.assertEqual(len(second), 16)
                self.assertEqual(sum(1 for _ in second), 6)
            for options, length in [({}, 24), ({"steps": 7}, 14), ({"start_step": 2}, 20)]:
                with self.subTest(options), self.loader(address, **options) as second:
                    self.assertEqual(len(second), length)
                    second.load_state_dict(state)
                    self.assertEqual(len(second), length)
                    steps = [batch.step for batch in second]
                    begin = options.get("start_step", 0)
                    self.assertEqual((steps[0], len(steps)), (5, length - 2 * (5 - begin)))
            with self.loader(address, steps=5) as second:
                with self.assertRaisesRegex(ballast.FailedPrecondition, "ends before step 5"):
                    second.load_state_dict(state)

    def test_a_state_within_a_step_counts_what_comes_again(self):
        """As Lightning, which takes off the length all batches that it has had."""
        config = self.write("within.yaml", CONFIG % 1)
        with self.server(config, "127.0.0.1:0") as (address,):
            had, state = 0, None
            for take in (3, 1, None):
                with self.loader(address, state_dict=state) as loader:
                    left = len(loader) - had
                    taken = []
                    for _ in range(left if take is None else take):
                        batch = next(loader)
                        taken.append((batch.step, batch.micro_batch))
                    state = loader.state_dict()
                    had += len(taken)
            self.assertEqual(taken, [(step, half) for step in range(1, 6) for half in range(2)])

    def test_one_that_continues_has_the_job_of_its_servers(self):
        address = "unix:%s/a.sock" % self.folder
        with self.server(self.write("one.yaml", CONFIG % 1), address):
            loader = self.loader(address)
            self.assertEqual(len(loader), 12)
            state = loader.state_dict()
        with loader, self.server(self.write("two.yaml", CONFIG % 2), address):
            loader.load_state_dict(state)
            self.assertEqual(len(loader), 24)
            self.assertEqual(loader.job["end_step"], 12)

    def test_one_that_has_ended_is_not_gone_through_again(self):
        config = self.write("ends.yaml", CONFIG % 1)
        with self.server(config, "127.0.0.1:0") as (address,):
            with self.loader(address) as loader:
                state = loader.state_dict()
                self.assertEqual(sum(1 for _ in zip(range(2), loader)), 2)
                self.assertEqual(sum(1 for _ in loader), 12 - 2)
                with self.assertRaisesRegex(ballast.FailedPrecondition, "another pass"):
                    iter(loader)
                self.assertIsNone(next(loader, None))
                loader.load_state_dict(state)
                self.assertEqual(sum(1 for _ in loader), 12)

    def test_packs_of_their_own_number_have_no_length(self):
        """As they are read, the 6 micro-batches of an epoch are fewer than the packs."""
        text = CONFIG.replace("micro: 8", "micro: 16") % 1
        roomy = text + "packing: {mode: scheduled, max_tokens_per_rank: 4096}\n"
        with self.server(self.write("roomy.yaml", roomy), "127.0.0.1:0") as (address,):
            with self.loader(address) as loader, self.assertRaisesRegex(TypeError, "scheduled"):
                len(loader)  # also where they happen to be as many
        text += "packing: {mode: scheduled, max_tokens_per_rank: 256}\n"
        config = self.write("scheduled.yaml", text)
        with self.server(config, "127.0.0.1:0") as (address,):
            with self.loader(address) as loader:
                for _ in range(2):
                    with self.assertRaisesRegex(TypeError, r"num_micro_batches\(step\)"):
                        len(loader)
                wanted = sum(map(loader.num_micro_batches, range(6)))
                self.assertGreater(wanted, 6)
                self.assertEqual(sum(1 for _ in loader), wanted)
                with self.assertRaises(TypeError):
                    len(loader)

    def test_a_job_that_was_given_other_sizes_has_no_length(self):
        text = (CONFIG % 0).replace("serve: {", "serve: {revisions: changes, ")
        config = self.write("changed.yaml", text)
        offered = self.write("offered.yaml", text.replace("global: 16", "global: 32"))
        with self.server(config, "127.0.0.1:0") as (address,):
            with self.loader(address, steps=60) as loader:
                self.assertEqual(len(loader), 120)
            tools.run("ballastctl", "--server", address, "change", "--config", offered,
                      "--from-step", 50)  # fmt: skip
            with self.loader(address, start_step=49, steps=2) as loader:
                with self.assertRaisesRegex(TypeError, "change of the running job"):
                    len(loader)
                self.assertEqual(sum(1 for _ in loader), 2 + 4)

    def test_a_loader_without_end_has_no_length(self):
        config = self.write("endless.yaml", CONFIG % 0)
        with self.server(config, "127.0.0.1:0") as (address,):
            with self.loader(address) as loader:
                self.assertTrue(loader)
                with self.assertRaisesRegex(TypeError, "steps=.*order.epochs"):
                    len(loader)

    def test_steps_of_tokens_say_their_micro_batches_one_by_one(self):
        text = CONFIG.replace("global: 16", "tokens: 900") % 1
        config = self.write("tokens.yaml", text)
        with self.server(config, "127.0.0.1:0") as (address,):
            with self.loader(address) as loader:
                with self.assertRaisesRegex(TypeError, r"num_micro_batches\(step\)"):
                    len(loader)
                end = loader.job["end_step"]
                wanted = [loader.num_micro_batches(step) for step in range(end + 1)]
                self.assertEqual(wanted.pop(), 0)
                self.assertGreater(len(set(wanted)), 1)
                counts = [0] * end
                for batch in loader:
                    counts[batch.step] += 1
                    if batch.num_micro_batches > 1:
                        self.assertLessEqual(batch.step_totals.tokens, 900)
                self.assertEqual(counts, wanted)

    def test_lightning_gets_no_state_of_a_loader_without_length(self):
        """It has fetched a batch by then that no step has trained on."""
        asks = {"__name__": "lightning.pytorch.utilities.combined_loader"}
        exec("def state_of(loader): return [each.state_dict() for each in [loader]][0]", asks)
        config = self.write("endless.yaml", CONFIG % 0)
        with self.server(config, "127.0.0.1:0") as (address,):
            with self.loader(address) as loader:
                with self.assertRaisesRegex(ballast.FailedPrecondition, r"Lightning.*steps=\.\.\."):
                    asks["state_of"](loader)
                self.assertEqual(loader.state_dict()["next_step"], 0)
        config = self.write("tokens.yaml", CONFIG.replace("global: 16", "tokens: 900") % 1)
        with self.server(config, "127.0.0.1:0") as (address,):
            with self.loader(address) as loader:
                with self.assertRaisesRegex(ballast.FailedPrecondition, "Lightning.*batch.tokens"):
                    asks["state_of"](loader)
                self.assertEqual(loader.state_dict()["next_step"], 0)
        config = self.write("endless.yaml", CONFIG % 0)
        with self.server(config, "127.0.0.1:0") as (address,):
            with self.loader(address, steps=4) as loader:
                self.assertEqual(asks["state_of"](loader)["next_step"], 0)
                self.assertEqual(loader.step, 0)
                # As tqdm and list() ask.
                self.assertEqual(sum(1 for _ in zip(range(3), loader)), 3)
                self.assertEqual(loader.step, 1)

    def test_the_report_sums_the_batches(self):
        config = self.write("report.yaml", CONFIG % 1)
        with self.server(config, "127.0.0.1:0") as (address,):
            with self.loader(address) as loader:
                self.assertEqual(
                    loader.report(),
                    {"step": 0, "seconds": 0.0, "wait_seconds": 0.0, "wait_ms": 0.0},
                )
                batches = [next(loader) for _ in range(3)]
                report = loader.report()
                schedule = loader.schedule()
            json.dumps(report)
            self.assertEqual(report["step"], 1)
            self.assertEqual(report["micro_batch"], 0)
            self.assertEqual(report["batches"], 3)
            for key in ("samples", "tokens", "label_tokens", "images", "patches"):
                self.assertEqual(report[key], sum(getattr(b.totals, key) for b in batches), key)
            self.assertEqual(report["bytes_read"], sum(b.bytes_read for b in batches))
            self.assertGreaterEqual(report["wait_seconds"], report["wait_ms"] / 1e3)
            self.assertGreaterEqual(report["seconds"], report["wait_seconds"])
            # The load by hand, from the samples: the heaviest rank over the mean.
            heaviest = mean = 0
            for micro_batch in schedule["micro_batches"]:
                load = [0, 0]
                for sample in micro_batch["samples"]:
                    load[sample["owner"]["vision"]] += sample["cost"]["vision"]
                heaviest += max(load)
                mean += sum(load) / 2
            self.assertAlmostEqual(report["vision_load_after"], heaviest / mean)
            self.assertGreaterEqual(report["vision_load_before"], report["vision_load_after"])

    def test_steps_of_several_sizes_are_counted(self):
        job = {"global_batch": 16, "micro_batch": 4, "step_ranges": []}
        self.assertEqual(batches_between(job, 3, 10), 7 * 4)
        job["step_ranges"] = [{"first_step": 0, "samples": 4}, {"first_step": 2, "samples": 8},
                              {"first_step": 5, "samples": 16}]  # fmt: skip
        sizes = [1, 1, 2, 2, 2, 4, 4, 4, 4, 4]
        for first in range(10):
            for end in range(10):
                self.assertEqual(batches_between(job, first, end), sum(sizes[first:end]))

    def test_tqdm_shows_the_total(self):
        if importlib.util.find_spec("tqdm") is None:
            self.skipTest("there is no tqdm")
        import io

        from tqdm import tqdm

        config = self.write("tqdm.yaml", CONFIG % 1)
        with self.server(config, "127.0.0.1:0") as (address,):
            with self.loader(address) as loader:
                text = io.StringIO()
                self.assertEqual(sum(1 for _ in tqdm(loader, file=text)), 12)
        self.assertIn("12/12", text.getvalue())


if __name__ == "__main__":
    unittest.main()
