"""The hooks of Megatron's training loops, over a fake loader that counts."""

import itertools
import types
import unittest

from ballast.adapters import bridge_iterators, bridge_qwen3_vl, bridge_vlm, megatron_bridge
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


def groups(**ranks):
    place = {key: types.SimpleNamespace(rank=lambda value=value: value)
             for key, value in dict(dict(dp=0, tp=0, pp=0, cp=0), **ranks).items()}  # fmt: skip
    return types.SimpleNamespace(**place)


class BridgeIteratorsTest(unittest.TestCase):
    def build(self, dataset=None, train=None, collections=None):
        build = bridge_iterators.data_iterators("unix:/nowhere")
        cfg = types.SimpleNamespace(
            dataset=types.SimpleNamespace(**(dataset or {"megatron_mimo_scalable_dp": True})),
            train=types.SimpleNamespace(**(train or {})),
        )
        infra = types.SimpleNamespace(pg_collections=collections or {})
        return build(cfg, infra, train_state=types.SimpleNamespace(step=4))

    def test_place(self):
        place = bridge_iterators.place_of
        self.assertEqual(
            place({"images": None, "language": groups(dp=3, tp=1, pp=2)}),
            {"modules": "language", "dp_rank": 3, "tp_rank": 1, "pp_rank": 2, "cp_rank": 0},
        )
        self.assertEqual(place({"images": groups(dp=1), "language": None})["modules"], "vision")
        self.assertIsNone(place({"images": groups(pp=1), "language": None}))
        self.assertIsNone(place({"images": None}))

    def test_a_rank_without_batches_gets_no_iterators(self):
        self.assertEqual(self.build(collections={"images": groups(pp=1)}), (None, None))

    def test_a_dataset_that_would_slice_or_pack_again_is_refused(self):
        with self.assertRaisesRegex(FailedPrecondition, "scalable_dp: found False"):
            self.build(dataset={"seq_length": 8})
        with self.assertRaisesRegex(FailedPrecondition, "enable_in_batch_packing: found True"):
            self.build(
                dataset={"megatron_mimo_scalable_dp": True, "enable_in_batch_packing": True}
            )

    def test_other_batch_sizes_are_refused(self):
        check = bridge_iterators._check_sizes
        job = {"global_batch": 64, "micro_batch": 16}
        check(types.SimpleNamespace(global_batch_size=64, micro_batch_size=16), job)
        with self.assertRaisesRegex(FailedPrecondition, "micro_batch_size: found 8; .* is 16"):
            check(types.SimpleNamespace(global_batch_size=64, micro_batch_size=8), job)
        # batch.changes: the trainer's is the first, the last or any other size.
        job["step_ranges"] = [{"samples": 64}, {"samples": 128}]
        check(types.SimpleNamespace(global_batch_size=128, micro_batch_size=16), job)
        with self.assertRaisesRegex(FailedPrecondition, "global_batch_size: found 96; .* is 64"):
            check(types.SimpleNamespace(global_batch_size=96, micro_batch_size=16), job)


class StageTest(unittest.TestCase):
    def test_a_first_stage_needs_the_pixels(self):
        given = consumers.text()
        given.totals = types.SimpleNamespace(images=3, videos=0)
        for stage, adapter in itertools.product((0, 1), (
            bridge_vlm.Vlm(consumers.FakeLoader(), "qwen3_vl"), bridge_qwen3_vl.Qwen3VlStep(consumers.FakeLoader()),
            megatron_bridge.Mimo(consumers.FakeLoader()),
        )):  # fmt: skip
            given._parts = [types.SimpleNamespace(info=types.SimpleNamespace(pp_rank=stage))]
            with self.subTest(stage=stage, adapter=type(adapter)):
                if stage == 0:
                    with self.assertRaisesRegex(FailedPrecondition, "3 images .* without their pix"):
                        adapter(given)
                elif not isinstance(adapter, bridge_qwen3_vl.Qwen3VlStep):
                    adapter(given)


if __name__ == "__main__":
    unittest.main()
