"""Splits of one job on a real server: pulled at once, each with its own samples."""

import collections
import functools
import math
import threading
import types
import unittest

import ballast
from ballast.adapters import bridge_iterators
from tests.harness import tools

TRAIN, VALID, GLOBAL = tools.SAMPLES, 32, 16
SOURCES = """
  - {name: held_out, format: webdataset, path: "held_out/docs-*.tar", split: valid}
"""


class SplitsTest(tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.config, encoding="utf-8") as file:
            text = file.read()
        cls.train_only = cls.folder + "/train.yaml"
        with open(cls.train_only, "w", encoding="utf-8") as file:
            file.write(text)
        with open(cls.config, "w", encoding="utf-8") as file:
            file.write(text.replace("\nmodel:", SOURCES + "model:"))
        tool = cls()
        tool.ok(
            "ballast-server", "make-corpus", "--out", cls.folder + "/held_out",
            "--samples", VALID, "--seed", 7,
        )  # fmt: skip
        tool.ok("ballast-server", "index", "--config", cls.config)
        cls.address = "unix:" + cls.folder + "/a.sock"
        cls.until_class_ends(tool.server(cls.config, cls.address))

    def loader(self, split, rank=0, module="language", address=None, **options):
        loader = ballast.Loader(
            address or self.address, module, dp_rank=rank, device="cpu", array="numpy",
            split=split, **options,
        )  # fmt: skip
        self.addCleanup(loader.close)
        return loader

    def test_splits_pulled_at_once_have_their_samples_once_an_epoch(self):
        epochs = 2
        sizes = {"train": ("docs", TRAIN), "valid": ("held_out", VALID)}
        ranks = [
            (module, rank) for module, dp in (("vision", 2), ("language", 4)) for rank in range(dp)
        ]
        seen = {(split, module): [] for split in sizes for module in ("vision", "language")}
        failures = []

        def pull(split, module, rank):
            steps = epochs * sizes[split][1] // GLOBAL
            try:
                for batch in self.loader(split, rank, module, steps=steps):
                    self.assertEqual(batch.num_micro_batches, 2)
                    seen[split, module].extend((batch.step, s.name) for s in batch.samples)
            except BaseException as error:  # pylint: disable=broad-except
                failures.append(error)

        threads = [
            threading.Thread(target=pull, args=(split, *rank)) for split in sizes for rank in ranks
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        for (split, _), found in seen.items():
            source, size = sizes[split]
            wanted = collections.Counter("%s:%d" % (source, i) for i in range(size))
            for epoch in range(epochs):
                steps = range(epoch * size // GLOBAL, (epoch + 1) * size // GLOBAL)
                names = collections.Counter(name for step, name in found if step in steps)
                self.assertEqual(names, wanted)

    def test_job(self):
        job = self.loader("valid").job
        self.assertEqual(job["split"], "valid")
        self.assertEqual(job["splits"], ["train", "valid"])
        self.assertEqual(job["steps_per_epoch"], VALID // GLOBAL)
        self.assertEqual(self.loader("train").job["fingerprint"], job["fingerprint"])

    def test_a_split_that_the_job_lacks(self):
        with self.assertRaisesRegex(ballast.InvalidArgument, r"sources\[\]\.split.*train, valid"):
            self.loader("test").open()
        with self.assertRaisesRegex(ballast.InvalidArgument, "split: found 'validation'"):
            self.loader("validation")

    def test_no_step_of_validation_is_not_one_without_end(self):
        with self.assertRaisesRegex(ballast.InvalidArgument, "^steps: found 0; .*math.inf"):
            self.loader("valid", steps=0)
        self.assertEqual(next(self.loader("train", steps=0)).step, 0)

    def test_each_for_is_a_pass(self):
        for options in ({}, {"steps": 1}, {"steps": 3}):
            with self.subTest(options):
                valid = self.loader("valid", **options)
                passes = [[batch.digest() for batch in valid] for _ in range(3)]
                self.assertEqual(len(passes[0]), len(valid))
                self.assertEqual(len(valid), 2 * options.get("steps", VALID // GLOBAL))
                self.assertEqual(passes, [passes[0]] * 3)

    def test_a_pass_that_was_left_begins_again(self):
        """As Lightning's check of two batches before the training, and limit_val_batches."""
        valid = self.loader("valid")
        iter(valid)  # looked at, and nothing taken
        first = iter(valid)
        wanted = [next(first).digest()]
        wanted += [batch.digest() for batch in first]  # an iterator goes on
        left = [batch.digest() for _, batch in zip(range(2), valid)]
        self.assertEqual(left, wanted[:2])
        self.assertEqual([batch.digest() for batch in valid], wanted)
        with self.assertRaisesRegex(ballast.FailedPrecondition, "another `iter`"):
            next(first)

    def test_a_pass_goes_on_from_a_state(self):
        valid = self.loader("valid")
        wanted = [batch.step for batch in valid]
        next(iter(valid)), next(valid)
        state = valid.state_dict()
        resumed = self.loader("valid", state_dict=state)
        self.assertEqual([batch.step for batch in resumed], [1, 1])
        self.assertEqual([batch.step for batch in resumed], wanted)
        with self.assertRaisesRegex(ballast.InvalidArgument, "found 2; one pass .*before step 2"):
            next(self.loader("valid", start_step=2))

    def test_without_end_it_goes_on_with_another_order(self):
        valid = self.loader("valid", steps=math.inf)
        names = [[s.name for s in batch.samples] for batch, _ in zip(valid, range(8))]
        self.assertNotEqual(names[:4], names[4:])
        self.assertEqual(next(iter(valid)).step, 4)
        with self.assertRaises(TypeError):
            len(valid)

    def test_states_belong_to_a_split(self):
        train, valid = self.loader("train"), self.loader("valid")
        for loader in (train, valid):
            next(loader)
            next(loader)
        self.assertEqual(valid.state_dict()["next_step"], 1)
        with self.assertRaisesRegex(ballast.InvalidArgument, "found a state of split train"):
            self.loader("valid").load_state_dict(train.state_dict())
        resumed = self.loader("valid", state_dict=valid.state_dict())
        self.assertEqual(next(resumed).step, 1)

    def test_a_run_resumes_after_a_split_was_added(self):
        address = "unix:" + self.folder + "/train.sock"
        with self.server(self.train_only, address):
            before = self.loader("train", address=address)
            next(before), next(before)
            state = before.state_dict()
            wanted = [sample.name for sample in next(before).samples]
            before.close()
        after = self.loader("train", state_dict=state)
        self.assertEqual([sample.name for sample in next(after).samples], wanted)

    def test_timings_of_validation_are_refused(self):
        valid = self.loader("valid")
        with self.assertRaisesRegex(ballast.InvalidArgument, "only train has both"):
            valid.report_timing(next(valid), 1.0)

    def test_bridges_iterators(self):
        def rank(number):
            return types.SimpleNamespace(rank=lambda: number)

        groups = types.SimpleNamespace(dp=rank(1), tp=rank(0), pp=rank(0), cp=rank(0))
        infra = types.SimpleNamespace(pg_collections={"images": None, "language": groups})
        cfg = types.SimpleNamespace(
            dataset=types.SimpleNamespace(megatron_mimo_scalable_dp=True),
            train=types.SimpleNamespace(global_batch_size=GLOBAL, micro_batch_size=8),
        )
        options = {"device": "cpu", "array": "numpy"}

        def positions(_loader):
            return lambda batch: (batch.step, [sample.name for sample in batch.samples])

        def build(consumed=0, **others):
            build = bridge_iterators.data_iterators(
                self.address, adapter=positions, **options, **others
            )
            state = types.SimpleNamespace(step=2, consumed_valid_samples=consumed)
            train, valid = build(cfg, infra, train_state=state)
            self.addCleanup(train.iterable.shutdown)
            return train, valid

        train, valid = build()
        self.assertEqual(next(train)[0], 2)
        first = [next(valid) for _ in range(4)]
        self.assertEqual([step for step, _ in first], [0, 0, 1, 1])
        self.assertTrue(all(name.startswith("held_out:") for _, names in first for name in names))
        self.assertEqual(next(valid)[0], 2)  # goes on with the next epoch
        next(valid)
        state = train.iterable.state_dict()
        self.assertEqual(state["splits"]["valid"]["next_step"], 3)
        wanted = next(valid)
        train.iterable.shutdown()

        train, valid = build()
        train.iterable.load_state_dict(state)
        self.assertEqual(next(valid), wanted)
        self.assertEqual(next(build(valid_start_step=3)[1]), wanted)
        # Of the second epoch's first step, by what Bridge's train state has counted.
        self.assertEqual(next(build(consumed=3 * GLOBAL)[1]), wanted)
        cfg.validation = types.SimpleNamespace(eval_global_batch_size=8, eval_micro_batch_size=8)
        with self.assertRaisesRegex(ballast.FailedPrecondition, "eval_global_batch_size: found 8"):
            build()
        del cfg.validation
        test = functools.partial(bridge_iterators.split_iterator, cfg=cfg)
        with self.assertRaisesRegex(ballast.InvalidArgument, "train, valid"):
            test(self.address, infra, "test", adapter=positions, **options)
        again = test(self.address, infra, "valid", adapter=positions, **options)
        self.addCleanup(again.iterable.shutdown)
        self.assertEqual(next(again), first[0])

    def ranks(self, address, shape):
        """Batches of each rank of language, in one pass over `valid`."""
        return [
            list(self.loader("valid", rank, address=address, cp_rank=cp, max_batches_held=32))
            for rank in range(4)
            for cp in range(shape.get("cp", 1))
        ]

    def test_one_pass_counts_each_sample_once(self):
        """Although 12 do not divide the 32 samples, nor the 8 of a source that comes as often."""
        with open(self.config, encoding="utf-8") as file:
            text = file.read().replace("micro: 8,", "micro: 8, valid: {global: 12, micro: 4},")
        self.ok("ballast-server", "make-corpus", "--out", self.folder + "/small", "--samples", 8,
                "--seed", 9)  # fmt: skip
        more = '  - {name: small, format: webdataset, path: "small/docs-*.tar", split: valid}\n'
        cases = {
            "shard": text,
            "padded": text.replace("balance:", "balance:\n  equal_count: true")
            + "packing: {mode: padded}\n",
            "context": text.replace("dp: 4", "dp: 4, cp: 2") + "packing: {align: 4}\n",
            "two": text.replace("model:", more + "model:", 1),
        }
        for name, config in cases.items():
            with self.subTest(name):
                path = self.write(name + ".yaml", config)
                self.ok("ballast-server", "index", "--config", path)
                address = "unix:%s/%s.sock" % (self.folder, name)
                with self.server(path, address):
                    self.check_one_pass(self.ranks(address, {"cp": 2} if name == "context" else {}),
                                        {"held_out": VALID, **({"small": 8} if name == "two" else {})},
                                        copies=2 if name == "context" else 1)  # fmt: skip
                    if name == "shard":
                        with self.assertRaisesRegex(ballast.FailedPrecondition, "dlpack"):
                            for rank in range(4):
                                for _ in ballast.Loader(address, "language", dp_rank=rank,
                                                        device="cpu", array="dlpack",
                                                        split="valid"):  # fmt: skip
                                    pass

    def check_one_pass(self, ranks, sizes, copies):
        names = collections.Counter(
            s.name
            for batches in ranks
            for batch in batches
            for s in batch.samples
            if not s.repeated
        )
        wanted = {"%s:%d" % (source, i): copies for source, n in sizes.items() for i in range(n)}
        self.assertEqual(names, wanted)
        repeated = [
            s for batches in ranks for batch in batches for s in batch.samples if s.repeated
        ]
        self.assertTrue(repeated)
        learnt = [
            sum(int((batch["labels"] != -100).sum()) for batch in batches) for batches in ranks
        ]
        masked = [sum(float(batch["loss_mask"].sum()) for batch in batches) for batches in ranks]
        self.assertEqual(learnt, masked)
        counted = [sum(batch.totals.label_tokens for batch in batches) for batches in ranks]
        steps = {batch.step: batch.step_totals.label_tokens for batch in ranks[0]}
        parts = {(batch.step, batch.micro_batch): batch.micro_batch_totals.label_tokens
                 for batch in ranks[0]}  # fmt: skip
        self.assertEqual(sum(learnt), sum(steps.values()))
        self.assertEqual(sum(counted), copies * sum(steps.values()))
        self.assertEqual(sum(parts.values()), sum(steps.values()))
        if set(sizes) == {"held_out"}:  # of steps that divide the samples
            whole = {batch.step: batch.step_totals.label_tokens for batch in self.loader("valid")}
            self.assertEqual(sum(steps.values()), sum(whole.values()))

    def test_tools(self):
        arguments = ("--step", 1, "--steps", 2, "--split", "valid", "--json")
        plan = self.ok("ballast-server", "plan", "--config", self.config, *arguments)
        schedule = self.ok("ballastctl", "--server", self.address, "schedule", *arguments)
        self.assertEqual(plan, schedule)
        pulled = self.json_lines(
            "ballastctl", "--server", self.address, "pull", "--module", "language",
            "--dp-rank", 0, *arguments,
        )  # fmt: skip
        self.assertEqual([block["step"] for block in pulled], [1, 1, 2, 2])
        of_train = self.json_lines(
            "ballastctl", "--server", self.address, "pull", "--module", "language",
            "--dp-rank", 0, "--step", 1, "--json",
        )  # fmt: skip
        self.assertNotEqual(pulled[0]["xxh3"], of_train[0]["xxh3"])
        sample = self.json_lines(
            "ballast-server", "inspect", "sample", "--config", self.config,
            "--position", 17, "--split", "valid",
        )[0]  # fmt: skip
        self.assertTrue(sample["sample"].startswith("held_out:"))
        message = self.error(
            "ballastctl", "--server", self.address, "schedule", "--step", 0, "--split", "test"
        )
        self.assertIn("sources[].split", message)


if __name__ == "__main__":
    unittest.main()
