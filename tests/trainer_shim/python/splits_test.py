"""Splits of one job on a real server: pulled at once, each with its own samples."""

import collections
import functools
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
        ranks = [(module, rank) for module, dp in (("vision", 2), ("language", 4)) for rank in range(dp)]
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
        with self.assertRaisesRegex(ballast.InvalidArgument, "^steps: found 0; .*valid.global"):
            self.loader("valid", steps=0)
        self.assertEqual(next(self.loader("train", steps=0)).step, 0)

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
