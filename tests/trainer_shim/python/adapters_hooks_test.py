"""The hooks of Megatron's training loops, over a fake loader that counts."""

import importlib.util
import inspect
import itertools
import sys
import tempfile
import types
import unittest
from unittest import mock

from ballast import _structs
from ballast.adapters import (
    bridge_iterators,
    bridge_qwen3_vl,
    bridge_vlm,
    megatron_bridge,
    megatron_lm,
)
from ballast.adapters.megatron_hooks import DataIterator, imbalance
from ballast.batch import Totals
from ballast.errors import FailedPrecondition, InvalidArgument
from tests.trainer_shim.python import adapters_megatron_test as consumers

TOTALS = Totals(4, 30, 300, 32, 320, 20, 48, 3, 0)


class FakeLoader:
    """Steps of 2, 3, 2, 3, ... micro-batches."""

    def __init__(self, steps=3, start=0, **options):
        self.options = options
        self.places = [
            (step, i, 2 + step % 2) for step in range(start, steps) for i in range(2 + step % 2)
        ]
        self.given = 0
        self.asked = []
        self.closed = False

    def keep_schedules(self):
        pass

    def __iter__(self):
        return self

    def __next__(self):
        if self.given == len(self.places):
            raise StopIteration
        step, number, count = self.places[self.given]
        self.given += 1
        return types.SimpleNamespace(
            step=step, micro_batch=number, num_micro_batches=count, step_totals=TOTALS,
            bytes_read=100, bytes_moved=10,
        )  # fmt: skip

    @property
    def next_step(self):
        left = self.places[self.given :]
        return left[0][0] if left else self.places[-1][0] + 1

    def num_micro_batches(self, step):
        self.asked.append(step)
        return next((count for number, _, count in self.places if number == step), 0)

    def schedule(self):
        load = {"vision": {"before": [6, 2], "after": [4, 4]}}
        return {"micro_batches": [{"load": load}]}

    def state_dict(self, next_step=None):
        return {"next_step": self.next_step if next_step is None else next_step}

    def load_state_dict(self, state):
        self.__init__(start=state["next_step"])

    def close(self):
        self.closed = True


class DataIteratorTest(unittest.TestCase):
    def test_number_of_micro_batches_is_known_before_the_first(self):
        loader = FakeLoader()
        iterator = DataIterator(loader)
        for step, wanted in enumerate((2, 3, 2)):
            given = loader.given
            self.assertEqual(iterator.num_micro_batches(step), wanted)
            self.assertEqual((loader.given, loader.asked[-1]), (given, step))  # no batch is taken
            self.assertEqual(iterator.num_micro_batches(), wanted)
            got = [next(iterator) for _ in range(wanted)]
            self.assertEqual([(b.step, b.micro_batch) for b in got],
                             [(step, i) for i in range(wanted)])  # fmt: skip
        self.assertEqual(iterator.num_micro_batches(), 0)
        for _ in range(2):
            with self.assertRaises(StopIteration):
                next(iterator)

    def test_totals_are_known_before_the_first_batch(self):
        loader = FakeLoader()
        for iterator in (DataIterator(loader), DataIterator(FakeLoader(), virtual_stages=2)):
            for step, count in enumerate((2, 3, 2)):
                self.assertIs(iterator.step_totals(), TOTALS)
                self.assertIs(iterator.step_totals(), TOTALS)
                self.assertEqual(iterator.num_micro_batches(step), count)
                self.assertEqual(iterator.state_dict(), {"next_step": step})
                got = [(b.step, b.micro_batch) for b in itertools.islice(iterator, count - 1)]
                with self.assertRaisesRegex(FailedPrecondition, "before a step's first batch"):
                    iterator.step_totals()
                got += [(b.step, b.micro_batch) for b in itertools.islice(iterator, 1)]
                self.assertEqual(got, [(step, i) for i in range(count)])
                for chunk in iterator.iterators[1:]:
                    self.assertEqual(len(list(itertools.islice(chunk, count))), count)
            with self.assertRaises(StopIteration):
                iterator.step_totals()

    def test_wrap_data_iterator(self):
        class Rerun:
            def __init__(self, iterable):
                self.iterable = iterable

        for wrapped in (
            DataIterator(FakeLoader()), Rerun(DataIterator(FakeLoader())),
            DataIterator(FakeLoader(), virtual_stages=2).iterators,
            [Rerun(chunk) for chunk in DataIterator(FakeLoader(), virtual_stages=2).iterators],
        ):  # fmt: skip
            got = megatron_lm.wrap_data_iterator(wrapped, None, 7)
            self.assertIs(got[0], wrapped)
            self.assertEqual(got[1:], (2, 32.0, 320.0))
        for other in (None, iter([])):
            with self.assertRaisesRegex(InvalidArgument, "wanted a megatron_hooks.DataIterator"):
                megatron_lm.wrap_data_iterator(other)

    def test_another_step_is_refused(self):
        with self.assertRaisesRegex(FailedPrecondition, "found 1; the next batch is of step 0"):
            DataIterator(FakeLoader()).num_micro_batches(1)

    def test_state_counts_only_batches_given_out(self):
        iterator = DataIterator(FakeLoader())
        self.assertEqual(iterator.save_state(), {"next_step": 0})
        iterator.num_micro_batches()
        self.assertEqual(iterator.save_state(), {"next_step": 0})
        next(iterator)
        self.assertEqual(iterator.save_state(), {"next_step": 0})
        next(iterator)
        iterator.num_micro_batches()
        self.assertEqual(iterator.iterable.save_state(), {"next_step": 1})

    def test_restore(self):
        iterator = DataIterator(FakeLoader())
        iterator.num_micro_batches()
        for name in ("restore_state", "load_state"):
            getattr(iterator, name)({"next_step": 1})
            self.assertEqual(iterator.num_micro_batches(1), 3)
            self.assertEqual(next(iterator).step, 1)

    def test_virtual_stages_all_get_every_batch(self):
        loader = FakeLoader()
        made = []

        def adapter(batch):
            made.append(batch)
            return [batch.step, batch.micro_batch]

        iterator = DataIterator(loader, adapter, virtual_stages=2)
        first, second = iterator.iterators
        wanted = [[step, number] for step, number, _ in loader.places]
        ahead = [next(first) for _ in range(3)]
        self.assertEqual(iterator.save_state(), {"next_step": 0})
        self.assertEqual([next(second) for _ in range(2)], wanted[:2])
        self.assertEqual(iterator.save_state(), {"next_step": 1})
        self.assertEqual(ahead + list(first), wanted)
        self.assertEqual(wanted[:2] + list(second), wanted)
        # Each chunk's inputs are made for it alone: steps write into them.
        self.assertEqual(len(made), 2 * len(wanted))
        self.assertIs(first.iterable, iterator)
        with self.assertRaisesRegex(InvalidArgument, "virtual_stages: found 0"):
            DataIterator(loader, virtual_stages=0)

    def test_metrics(self):
        iterator = DataIterator(FakeLoader(), balance=True)
        next(iterator)
        self.assertEqual(iterator.metrics(), {})
        next(iterator)
        metrics = iterator.metrics()
        self.assertGreaterEqual(metrics.pop("ballast/wait_ms"), 0)
        self.assertEqual(
            metrics,
            {"ballast/step": 0, "ballast/micro_batches": 2, "ballast/tokens": 30,
             "ballast/patches": 48, "ballast/images": 3, "ballast/label_tokens": 20,
             "ballast/read_bytes": 200, "ballast/moved_bytes": 20,
             "ballast/vision/imbalance": 1.0, "ballast/vision/imbalance_before": 1.5},
        )  # fmt: skip

    def test_imbalance_without_load(self):
        nothing = {"language": {"before": [0, 0], "after": [0, 0]}}
        self.assertEqual(
            imbalance({"micro_batches": [{"load": nothing}]}),
            {"language/imbalance": 1.0, "language/imbalance_before": 1.0},
        )

    def test_shutdown(self):
        loader, other = FakeLoader(), FakeLoader()
        DataIterator(loader, splits={"valid": DataIterator(other)}).shutdown()
        self.assertTrue(loader.closed)
        self.assertTrue(other.closed)

    def test_state_includes_other_splits(self):
        valid = DataIterator(FakeLoader())
        train = DataIterator(FakeLoader(), splits={"valid": valid})
        for _ in range(2 + 3):
            next(valid)
        next(train)
        state = train.save_state()
        self.assertEqual(state, {"next_step": 0, "splits": {"valid": {"next_step": 2}}})
        next(valid)
        train.restore_state(state)
        self.assertEqual((next(train).step, next(valid).step), (0, 2))
        # Of a job that had, or that has, only train.
        train.restore_state({"next_step": 1})
        self.assertEqual((next(train).step, next(valid).micro_batch), (1, 1))
        only_train = DataIterator(FakeLoader())
        only_train.restore_state(state)
        self.assertEqual(next(only_train).step, 0)


def groups(sizes=None, **ranks):
    """Process groups of a rank's module."""
    return types.SimpleNamespace(**{
        key: types.SimpleNamespace(
            rank=lambda value=ranks.get(key, 0): value,
            size=lambda value=(sizes or {}).get(key, 1): value,
        )
        for key in ("dp", "tp", "pp", "cp")
    })  # fmt: skip


def job_of(modules=("vision", "language"), **sizes):
    """A job of `sizes`: {"vision": {"dp": 2}}."""
    return {
        "modules": [
            dict({"module": name, "dp": 1, "tp": 1, "pp": 1, "cp": 1}, **sizes.get(name, {}))
            for name in modules
        ],
        "global_batch": 64, "micro_batch": 16, "splits": ["train", "valid"], "step_ranges": [],
    }  # fmt: skip


class PlaceTest(unittest.TestCase):
    def test_place(self):
        place = bridge_iterators.place_of
        job = job_of(language={"dp": 4, "tp": 2, "pp": 3}, vision={"dp": 2})
        language = groups({"dp": 4, "tp": 2, "pp": 3}, dp=3, tp=1, pp=2)
        self.assertEqual(
            place({"images": None, "language": language}, job),
            {"modules": "language", "dp_rank": 3, "tp_rank": 1, "pp_rank": 2, "cp_rank": 0},
        )
        for name in ("images", "vision"):
            found = place({name: groups({"dp": 2}, dp=1), "language": None}, job)
            self.assertEqual((found["modules"], found["dp_rank"]), ("vision", 1))
        self.assertIsNone(place({"images": None, "language": None}, job))
        stages = job_of(vision={"pp": 2})
        self.assertIsNone(place({"images": groups({"pp": 2}, pp=1), "language": None}, stages))

    def test_names_of_modules(self):
        ours, job = bridge_iterators.ours_of, job_of()
        self.assertEqual(
            ours(["images", "language"], job), {"images": "vision", "language": "language"}
        )
        self.assertEqual(
            ours(["language", "radio"], job, {"radio": "vision"}),
            {"language": "language", "radio": "vision"},
        )
        for names, given, said in (
            # The second encoder of Bridge's example with audio got vision's batches.
            (
                ["images", "audios", "language"],
                None,
                "module 'audios'; the job's .* 'vision', 'lang",
            ),
            (["radio", "language"], None, "module 'radio'; .*modules={'radio': \"vision\"}"),
            (
                ["images", "vision", "language"],
                None,
                "'images' and 'vision' for the job's one 'vi",
            ),
            (["images", "audios", "language"], {"audios": "vision"}, "'images' and 'audios' for"),
            (["images", "language"], {"images": "sound"}, "module 'images' as 'sound'"),
            (["images", "language"], {"language": "vision"}, "module 'language' as 'vision'"),
            (["language"], None, "modules 'language'; the job also has 'vision'"),
        ):
            with self.subTest(names=names, given=given):
                with self.assertRaisesRegex(FailedPrecondition, said):
                    ours(names, job, given)
        with self.assertRaisesRegex(
            InvalidArgument, "found 'image'; the trainer's modules are 'ima"
        ):
            ours(["images", "language"], job, {"image": "vision"})
        # With two encoders in the job `images` may be either.
        two = job_of(("vision", "audio", "language"))
        with self.assertRaisesRegex(
            FailedPrecondition, "module 'images'; .* 'vision', 'audio', 'la"
        ):
            ours(["images", "audio", "language"], two)
        self.assertEqual(
            ours(["images", "audio", "language"], two, {"images": "vision"})["images"], "vision"
        )

    def test_parallel_sizes(self):
        place = bridge_iterators.place_of
        for key in ("dp", "tp", "pp", "cp"):
            # dp 1 of 2, for example: half of the samples would reach no rank.
            with self.assertRaisesRegex(
                FailedPrecondition, "'images': found %s 1; .*modules.vision.%s is 2" % (key, key)
            ):
                place({"images": groups(), "language": None}, job_of(vision={key: 2}))

    def test_two_modules_in_a_process(self):
        with self.assertRaisesRegex(FailedPrecondition, "'images' and 'language' in one process"):
            bridge_iterators.place_of({"images": groups(), "language": groups()}, job_of())


class FakeSplit(FakeLoader):
    def __init__(self, job, **options):
        super().__init__(steps=4, start=options["start_step"] if "start_step" in options else 0)
        self.job = job
        self.options = options


class BridgeIteratorsTest(unittest.TestCase):
    def setUp(self):
        self.jobs = {"train": job_of(), "valid": job_of()}
        self.opened = {}
        connection = types.SimpleNamespace(job=lambda: self.jobs["train"])
        for name, value in (
            ("Connection", types.SimpleNamespace(of=lambda _: connection)),
            ("opened", self.open),
        ):
            patch = mock.patch.object(bridge_iterators, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def open(self, _, options):
        split = options.get("split", "train")
        self.opened[split] = FakeSplit(self.jobs[split], **options)
        return self.opened[split]

    def cfg(self, dataset=None, **groups_of_keys):
        sizes = {"train": {"global_batch_size": 64, "micro_batch_size": 16}}
        return types.SimpleNamespace(
            dataset=types.SimpleNamespace(**(dataset or {"megatron_mimo_scalable_dp": True})),
            **{
                name: types.SimpleNamespace(**keys)
                for name, keys in dict(sizes, **groups_of_keys).items()
            },
        )

    def build(self, cfg=None, collections=None, state=None, **options):
        build = bridge_iterators.data_iterators(
            "unix:/nowhere", adapter=lambda _: lambda batch: batch, **options
        )
        infra = types.SimpleNamespace(
            pg_collections=collections or {"images": None, "language": groups()}
        )
        return build(cfg or self.cfg(), infra, train_state=state or types.SimpleNamespace(step=0))

    def test_a_rank_without_batches_gets_no_iterators(self):
        self.jobs["train"] = job_of(vision={"pp": 2})
        collections = {"images": groups({"pp": 2}, pp=1), "language": None}
        self.assertEqual(self.build(collections=collections), (None, None))

    def test_a_dataset_that_would_slice_or_pack_again_is_refused(self):
        with self.assertRaisesRegex(FailedPrecondition, "scalable_dp: found False"):
            self.build(self.cfg({"seq_length": 8}))
        with self.assertRaisesRegex(FailedPrecondition, "enable_in_batch_packing: found True"):
            self.build(
                self.cfg({"megatron_mimo_scalable_dp": True, "enable_in_batch_packing": True})
            )

    def step_module(self, text):
        """Bridge's module of the forward step, of this text."""
        name = "megatron.bridge.training.megatron_mimo_step"
        file = self.enterContext(tempfile.NamedTemporaryFile("w", suffix=".py"))
        file.write(text)
        file.flush()
        spec = importlib.util.spec_from_file_location(name, file.name)
        step = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(step)
        parents = {name.rsplit(".", count)[0]: types.ModuleType("parent") for count in (1, 2, 3)}
        self.enterContext(mock.patch.dict(sys.modules, {**parents, name: step}))
        self.enterContext(mock.patch.object(bridge_iterators, "_uncut", False))
        return step

    def test_a_bridge_that_ignores_the_flag_is_refused(self):
        self.jobs["train"] = self.jobs["valid"] = job_of(language={"dp": 2})
        language = {"images": None, "language": groups({"dp": 2})}
        self.step_module("def forward_step():\n    pass\n")
        with self.assertRaisesRegex(FailedPrecondition, "ignores .*uncut_forward_step.*5525"):
            self.build(collections=language)
        self.step_module("def forward_step():\n    return 'megatron_mimo_scalable_dp'\n")
        self.build(collections=language)
        # One rank a module: there is nothing to cut.
        self.jobs["train"] = self.jobs["valid"] = job_of()
        self.step_module("def forward_step():\n    pass\n")
        self.build()

    def test_a_step_that_does_not_cut(self):
        step = self.step_module(
            "def slice_batch_for_megatron_mimo(batch, dp_rank, dp_size):\n"
            "    return batch[dp_rank::dp_size]\n"
            "def forward_step(state: int, data_iterator, *, model=7) -> list:\n"
            "    return slice_batch_for_megatron_mimo(next(data_iterator), 0, 2) + [state, model]\n"
        )
        uncut = bridge_iterators.uncut_forward_step()
        self.assertEqual(uncut(5, iter([[1, 2, 3]])), [1, 2, 3, 5, 7])
        self.assertEqual(step.forward_step(5, iter([[1, 2, 3]])), [1, 3, 5, 7])  # Bridge's stays
        self.assertEqual(inspect.signature(uncut), inspect.signature(step.forward_step))
        self.jobs["train"] = self.jobs["valid"] = job_of(language={"dp": 2})
        self.build(collections={"images": None, "language": groups({"dp": 2})})
        self.step_module("def forward_step():\n    pass\n")
        with self.assertRaisesRegex(FailedPrecondition, "no call of slice_batch_for_megatron_mimo"):
            bridge_iterators.uncut_forward_step()

    def test_a_step_of_modules_that_share_their_ranks_does_not_cut(self):
        self.step_module(
            "def slice_batch_for_megatron_mimo_modules(batch, *, grids, language_module_name='l'):\n"
            "    return batch[:1]\n"
            "def forward_step(state, data_iterator, model):\n"
            "    return slice_batch_for_megatron_mimo_modules(next(data_iterator), grids=model)\n"
        )
        uncut = bridge_iterators.uncut_forward_step()
        self.assertEqual(uncut(0, iter([[1, 2, 3]]), {}), [1, 2, 3])
        self.jobs["train"] = self.jobs["valid"] = job_of(language={"dp": 2})
        self.build(collections={"images": None, "language": groups({"dp": 2})})

    def topology(self, **module_groups):
        """Megatron-LM's HeteroTopology: groups of the modules, None where the rank is not in
        one."""
        return types.SimpleNamespace(
            grids={
                name: types.SimpleNamespace(is_current_rank_in_grid=lambda g=g: g is not None)
                for name, g in module_groups.items()
            },
            module_pgs=module_groups,
        )

    def test_loaders_of_pretrain_mimo(self):
        args = types.SimpleNamespace(
            global_batch_size=64, micro_batch_size=8, iteration=3, consumed_valid_samples=128,
            consumed_train_samples=3 * 64, eval_global_batch_size=64, eval_micro_batch_size=8,
            eval_iters=1,
        )  # fmt: skip
        job = self.jobs["train"] = self.jobs["valid"] = job_of(language={"dp": 2})
        self.jobs["train"]["model"] = {"token_ids": {"image": 7}, "merge": 1}
        build = megatron_lm.mimo_data_loaders("unix:/nowhere")
        self.enterContext(mock.patch.object(megatron_lm, "Connection", bridge_iterators.Connection))
        language = self.topology(radio_encoder=None, language=groups({"dp": 2}, dp=1))
        train, valid, test = build(args, language)
        self.assertIsNone(test)
        self.assertIs(iter(train), train)
        self.assertEqual(self.opened["train"].options["dp_rank"], 1)
        self.assertEqual(self.opened["train"].options["start_step"], 3)
        self.assertEqual(self.opened["valid"].options["start_step"], 2)
        args.eval_iters = 0
        self.assertIsNone(build(args, language)[1])
        args.eval_iters = 1
        build(args, self.topology(radio_encoder=groups(), language=None))
        self.assertEqual(self.opened["train"].options["modules"], "vision")
        job["modules"][0]["pp"] = 2
        late = self.topology(radio_encoder=groups({"pp": 2}, pp=1), language=None)
        self.assertEqual(build(args, late), (None, None, None))
        job["modules"][0]["pp"] = 1
        for key, value, said in (
            ("micro_batch_size", 4, "found 4 on each of 2 ranks; .*batch.micro is 16"),
            ("global_batch_size", 32, "global_batch_size: found 32; .*batch.global is 64"),
            ("gtp_weight_remat_size", 2, "remat-size: found 2"),
            # A resumed run with another global batch, and an evaluation of half the size.
            ("consumed_train_samples", 96, "found 96 samples consumed in 3 steps, .*have 192"),
            ("eval_global_batch_size", 32, "eval_global_batch_size: found 32; .* split valid"),
        ):
            with self.assertRaisesRegex(FailedPrecondition, said):
                build(types.SimpleNamespace(**dict(vars(args), **{key: value})), language)

    def test_other_batch_sizes_are_refused(self):
        self.build()
        with self.assertRaisesRegex(
            FailedPrecondition, "train.micro_batch_size: found 8; .*batch.micro is 16 .* train"
        ):
            self.build(self.cfg(train={"global_batch_size": 64, "micro_batch_size": 8}))
        self.assertTrue(self.opened["train"].closed)
        with self.assertRaisesRegex(FailedPrecondition, "global_batch_size: found 96; .* is 64"):
            self.build(self.cfg(train={"global_batch_size": 96, "micro_batch_size": 16}))

    def test_other_sizes_of_evaluation_are_refused(self):
        """Bridge counted 32 samples of validation and got 16."""
        for group in ("validation", "train"):  # where Bridge has them, or might
            keys = {"eval_global_batch_size": 16, "eval_micro_batch_size": 8}
            if group == "train":
                keys.update(global_batch_size=64, micro_batch_size=16)
            with self.assertRaisesRegex(
                FailedPrecondition,
                group
                + ".eval_global_batch_size: found 16; .*batch.global is 64 for the split valid",
            ):
                self.build(self.cfg(**{group: keys}))
            self.assertTrue(self.opened["valid"].closed and self.opened["train"].closed)
            # Sizes of the split's own.
            self.jobs["valid"] = dict(job_of(), global_batch=16, micro_batch=8)
            self.build(self.cfg(**{group: keys}))
            keys["eval_micro_batch_size"] = 4
            with self.assertRaisesRegex(
                FailedPrecondition, "micro_batch_size: found 4; .* is 8 for"
            ):
                self.build(self.cfg(**{group: keys}))
            self.jobs["valid"] = job_of()
        # Without the keys, or with None, Bridge counts the training's.
        self.build(self.cfg(validation={"eval_global_batch_size": None}))
        self.jobs["valid"] = dict(job_of(), global_batch=16)
        for validation in ({}, {"eval_global_batch_size": None}):
            with self.assertRaisesRegex(
                FailedPrecondition, "train.global_batch_size: .* split valid"
            ):
                self.build(self.cfg(validation=validation))

    def test_a_split_of_its_own(self):
        self.jobs["test"] = dict(job_of(), global_batch=32)
        infra = types.SimpleNamespace(pg_collections={"images": None, "language": groups()})

        def split(cfg):
            return bridge_iterators.split_iterator(
                "unix:/nowhere", infra, "test", cfg=cfg, adapter=lambda _: lambda batch: batch
            )

        with self.assertRaisesRegex(
            FailedPrecondition, "train.global.* found 64; .*32 .*split test"
        ):
            split(self.cfg())
        split(self.cfg(validation={"eval_global_batch_size": 32, "eval_micro_batch_size": 16}))
        split(None)
        with self.assertRaisesRegex(TypeError, "cfg"):
            bridge_iterators.split_iterator("unix:/nowhere", infra, "test")

    def test_steps_of_several_sizes_are_refused(self):
        """The MIMO loop asks once for the number of micro-batches."""
        self.jobs["train"]["step_ranges"] = [
            {"first_step": 0, "samples": 64}, {"first_step": 7, "samples": 128}
        ]  # fmt: skip
        with self.assertRaisesRegex(FailedPrecondition, "split train: found steps of 64, 128"):
            self.build()
        # From step 7 on there is one size.
        cfg = self.cfg(
            train={"global_batch_size": 128, "micro_batch_size": 16},
            validation={"eval_global_batch_size": 64, "eval_micro_batch_size": 16},
        )
        self.build(cfg, state=types.SimpleNamespace(step=7))
        with self.assertRaisesRegex(FailedPrecondition, "steps of 64, 128"):
            self.build(cfg, state=types.SimpleNamespace(step=6))

    def test_a_step_of_other_micro_batches_is_refused(self):
        # FakeLoader's steps have 2 and 3, by turns, as packing.mode: scheduled has.
        train, _ = self.build(self.cfg(train={"global_batch_size": 64, "micro_batch_size": 16}))
        with self.assertRaisesRegex(
            FailedPrecondition, "step 0: found 2 micro-batches; .* takes 4"
        ):
            next(train)
        iterator = DataIterator(FakeLoader(), micro_batches=2)
        self.assertEqual([next(iterator).step for _ in range(2)], [0, 0])
        with self.assertRaisesRegex(
            FailedPrecondition, "step 1: found 3 micro-batches; .* takes 2"
        ):
            next(iterator)

    def test_no_module_writes_the_state(self):
        """Bridge writes it if `iterable` has save_state: then the first data-parallel rank
        of each module removes and writes the same folder."""
        for iterator in self.build():
            self.assertFalse(hasattr(iterator.iterable, "save_state"))
            self.assertFalse(hasattr(iterator.iterable, "restore_state"))
        with self.assertRaisesRegex(FailedPrecondition, "dataloader_save: found '/x'; wanted none"):
            self.build(self.cfg({"megatron_mimo_scalable_dp": True, "dataloader_save": "/x"}))
        for none in (None, ""):
            self.build(self.cfg({"megatron_mimo_scalable_dp": True, "dataloader_save": none}))

    def test_positions_come_from_the_train_state(self):
        def begin(cfg=None, consumed=None, **options):
            state = types.SimpleNamespace(step=2)
            if consumed is not None:
                state.consumed_valid_samples = consumed
            self.build(cfg, state=state, **options)
            return [self.opened[split].options["start_step"] for split in ("train", "valid")]

        self.assertEqual(begin(), [2, 0])
        self.assertEqual(begin(consumed=3 * 64), [2, 3])
        self.assertEqual(begin(consumed=3 * 64, valid_start_step=1), [2, 1])
        self.jobs["valid"] = dict(job_of(), global_batch=32)
        validation = {"eval_global_batch_size": 32, "eval_micro_batch_size": 16}
        self.assertEqual(begin(self.cfg(validation=validation), consumed=3 * 64), [2, 6])

    def test_a_step_after_other_samples_is_refused(self):
        """As of a run that was begun with another global batch size: its step is another
        place in the data."""

        def begin(step, consumed):
            self.build(state=types.SimpleNamespace(step=step, consumed_train_samples=consumed))

        begin(0, 0)
        begin(0, 64)
        begin(2, 0)  # unknown
        begin(2, 2 * 64)
        said = "found 64 samples consumed in 2 steps, .*have 128.*batch.changes, {step: 2, glob"
        with self.assertRaisesRegex(FailedPrecondition, said):
            begin(2, 64)
        self.assertTrue(self.opened["train"].closed)
        self.jobs["train"]["step_ranges"] = [
            {"first_step": 0, "samples": 32}, {"first_step": 2, "samples": 64}
        ]  # fmt: skip
        begin(2, 64)
        begin(5, 64 + 3 * 64)


class StageTest(unittest.TestCase):
    def test_a_first_stage_needs_the_pixels(self):
        given = consumers.text()
        given.totals = types.SimpleNamespace(images=3, videos=0)
        for stage, adapter in itertools.product((0, 1), (
            bridge_vlm.Vlm(consumers.FakeLoader(), "qwen3_vl"), bridge_qwen3_vl.Qwen3VlStep(consumers.FakeLoader()),
            megatron_bridge.Mimo(consumers.FakeLoader()),
        )):  # fmt: skip
            info = types.SimpleNamespace(pp_rank=stage, module=_structs.MODULES["language"])
            given._parts = [types.SimpleNamespace(info=info)]
            with self.subTest(stage=stage, adapter=type(adapter)):
                if stage == 0:
                    with self.assertRaisesRegex(
                        FailedPrecondition, "3 images .* without their pix"
                    ):
                        adapter(given)
                elif not isinstance(adapter, bridge_qwen3_vl.Qwen3VlStep):
                    adapter(given)


if __name__ == "__main__":
    unittest.main()
