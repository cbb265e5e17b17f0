"""The package against loader servers over a drawn dataset, without a GPU."""

import copy
import ctypes
import gc
import json
import os
import pickle
import subprocess
import threading
import time
import unittest
from typing import get_args

import ballast
import numpy
from ballast.adapters import huggingface
from ballast.adapters._arrays import on_first_stage
from tests.harness import tools
from tests.harness.tools import DP, STEPS, TwoServersTest


def ends(module):
    """A communicator for each rank of the module; the ranks are threads of this
    process."""
    return ballast.Communicator.in_process(DP[module])


def in_threads(calls):
    """Runs the calls in parallel; returns their results or raises the first exception."""
    results = [None] * len(calls)

    def run(i):
        try:
            results[i] = calls[i]()
        except Exception as error:  # handed on below
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(tools.TIMEOUT_S)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


class LoaderTest(TwoServersTest):
    def drained(self, module, rank, **options):
        """(step, micro-batch, names, digest) of every batch of an exchanging rank."""
        found = []
        with self.loader(self.address, module, rank, **options) as loader:
            for batch in loader:
                names = [sample.name for sample in batch.samples]
                found.append((batch.step, batch.micro_batch, names, batch.digest()))
        return found

    def expected(self):
        """The same from ballast-rank, by (module, rank)."""
        found = {(module, rank): [] for module, dp in DP.items() for rank in range(dp)}
        for line in self.json_lines(
            "ballast-rank", "--server", self.address, "--steps", STEPS, "--json"
        ):
            found[line["module"], line["dp_rank"]].append(
                (line["step"], line["micro_batch"], line["samples"], line["digest"])
            )
        return found

    def test_batches_equal_those_of_ballast_rank(self):
        expected = self.expected()
        for module, dp in DP.items():
            got = in_threads(
                [
                    lambda rank=rank, end=end: self.drained(module, rank, communicator=end)
                    for rank, end in enumerate(ends(module))
                ]
            )
            for rank in range(dp):
                self.assertEqual(len(got[rank]), 2 * STEPS)
                self.assertEqual(got[rank], expected[module, rank])

    def test_ranks_without_communicator_get_the_same_batches(self):
        for (module, rank), batches in self.expected().items():
            self.assertEqual(self.drained(module, rank), batches)

    def test_ranks_that_exchange_over_gloo_get_the_same_batches(self):
        expected = self.expected()
        for module, dp in DP.items():
            got = in_threads(
                [lambda rank=rank: self.drained(module, rank, exchange=True) for rank in range(dp)]
            )
            for rank in range(dp):
                self.assertEqual(got[rank], expected[module, rank])
        # Nothing is exchanged where the servers deliver direct.
        with self.direct(exchange=True) as loader:
            self.assertEqual(next(loader).digest(), expected["language", 0][0][3])

    def test_cancel_ends_an_exchange_that_waits_for_a_peer(self):
        loaders = [
            self.loader(self.address, "vision", rank, exchange=True, steps=0) for rank in range(2)
        ]
        in_threads([loader.open for loader in loaders])
        # Rank 1 asks for nothing, so rank 0 waits.
        threading.Timer(0.1, loaders[0].cancel).start()
        begin = time.monotonic()
        with self.assertRaises(ballast.Cancelled):
            next(loaders[0])
        self.assertLess(time.monotonic() - begin, 20)
        with self.assertRaisesRegex(ballast.Unavailable, "rank 0 left the exchange"):
            next(loaders[1])
        for loader in loaders:
            loader.close()

    def test_ranks_of_a_module_must_ask_alike(self):
        end = ends("vision")[1]
        # One block at a time, so that the stream stays open.
        with self.loader(self.address, "vision", 0, steps=0, max_bytes=1) as asks:
            next(asks)
            exchanges = self.loader(self.address, "vision", 1, communicator=end)
            with self.assertRaisesRegex(
                ballast.FailedPrecondition, "vision rank 0.*give each rank a communicator, or none"
            ):
                next(exchanges)
            exchanges.close()
        # Each module chooses for itself.
        with self.loader(self.address, "language", 0) as asks:
            next(asks)

    def test_tensors(self):
        with self.direct() as loader:
            batch = next(loader)
            self.assertEqual((batch.step, batch.micro_batch), (0, 0))
            self.assertEqual(batch.num_micro_batches, 2)
            tokens = batch.totals.padded_tokens
            shapes = {
                key: (v.shape, v.dtype.name) for key, v in batch.items() if key != "max_seqlen"
            }
            n = len(batch.samples)
            self.assertEqual(
                shapes,
                {
                    "input_ids": ((1, tokens), "int64"),
                    "labels": ((1, tokens), "int64"),
                    "loss_mask": ((1, tokens), "float32"),
                    "position_ids": ((3, 1, tokens), "int64"),
                    "cu_seqlens": ((n + 1,), "int32"),
                    "cu_seqlens_padded": ((n + 1,), "int32"),
                    "cu_seqlens_host": ((n + 1,), "int32"),
                    "cu_seqlens_padded_host": ((n + 1,), "int32"),
                },
            )
            self.assertEqual(int((batch["labels"] != -100).sum()), batch.totals.label_tokens)
            self.assertEqual(batch["loss_mask"].sum(), batch.totals.label_tokens)
            self.assertEqual(batch["max_seqlen"], int(numpy.diff(batch["cu_seqlens_padded"]).max()))
            self.assertFalse(batch["input_ids"].flags.writeable)
            with self.assertRaisesRegex(KeyError, "did you mean 'input_ids'.*cu_seqlens"):
                batch["inptu_ids"]
            self.assertGreaterEqual(batch.step_totals.tokens, batch.micro_batch_totals.tokens)

    def test_number_of_micro_batches_before_the_first(self):
        with self.direct() as loader:
            self.assertEqual(loader.next_step, 0)
            self.assertEqual(loader.num_micro_batches(), 2)
            self.assertEqual(loader.num_micro_batches(STEPS - 1), 2)
            self.assertEqual(loader.num_micro_batches(STEPS), 0)
            self.assertEqual([batch.step for batch in loader][:3], [0, 0, 1])
            self.assertEqual(loader.next_step, STEPS)
            self.assertEqual(loader.num_micro_batches(), 0)

    def test_both_modules_in_one_batch(self):
        # Vision has half as many ranks: its rank 0 pairs with ranks 0 and 1 of language.
        ranks = {"vision": 0, "language": 1}
        with ballast.Loader(
            self.direct_address, dp_rank=ranks, device="cpu", array="numpy", steps=1
        ) as loader:
            batch = next(loader)
            grid = batch["image_grid_thw"]
            self.assertEqual(batch["pixel_values"].shape, (int(grid.prod(1).sum()), 1176))
            self.assertEqual(batch["pixel_values"].dtype, numpy.float32)
            self.assertIn("input_ids", batch)
            self.assertEqual(batch["vision_max_seqlen"], int(grid[:, 1:].prod(1).max()))

    def test_images_per_sample_follow_the_schedule(self):
        with self.direct() as loader:
            batch = next(loader)
            self.assertEqual(sum(batch.images_per_sample), batch.totals.images)
            self.assertEqual(loader.schedule()["step"], 0)
            batch = next(loader)
        with self.assertRaisesRegex(ballast.FailedPrecondition, "the loader was closed"):
            batch.images_per_sample

    def test_bfloat16_and_dlpack(self):
        wide = next(self.direct("vision").open())["pixel_values"].copy()
        loader = ballast.Loader(
            self.direct_address, "vision", dp_rank=0, device="cpu", array="dlpack",
            pixel_type="bfloat16", steps=1,
        )  # fmt: skip
        with loader:
            tensor = next(loader)["pixel_values"]
            self.assertEqual((tensor.dtype, tensor.device), ("bfloat16", (1, 0)))
            bits = tensor.numpy()
            self.assertEqual(bits.dtype, numpy.uint16)
            # Rounded to nearest: at most half a unit in the last of 8 binary digits.
            near = (bits.astype(numpy.uint32) << 16).view(numpy.float32)
            self.assertTrue((abs(near - wide) <= abs(wide) * 2.0**-8).all())

    def test_a_released_capsule_releases_the_memory(self):
        loader = ballast.Loader(
            self.direct_address, "language", device="cpu", array="dlpack", steps=1
        )
        with loader:
            batch = next(loader)
            tensor = batch["input_ids"]
            held = tensor._part.held
            # Not consumed.
            capsule = tensor.__dlpack__()
            self.assertEqual(list(held.values()), ["input_ids"])
            del capsule
            gc.collect()
            self.assertEqual(held, {})
            # Consumed by NumPy.
            array = numpy.from_dlpack(tensor)
            self.assertEqual(array.ctypes.data, tensor.data)
            self.assertTrue((array == tensor.numpy()).all())
            self.assertEqual(list(held.values()), ["input_ids"])
            del array
            gc.collect()
            self.assertEqual(held, {})

    def test_held_batches_stay_unchanged(self):
        with self.direct() as loader:
            wanted = [(b.digest(), b["input_ids"].copy()) for b in loader]
        loader = self.direct(max_batches_held=2 * STEPS + 1)
        batches = list(loader)
        self.assertEqual([batch.digest() for batch in batches], [digest for digest, _ in wanted])
        arrays = [batch["input_ids"] for batch in batches]
        loader.close()
        del batches
        gc.collect()
        for array, (_, ids) in zip(arrays, wanted):
            self.assertTrue((array == ids).all())

    def test_memory_is_reused_once_nothing_refers_to_it(self):
        with self.direct(steps=0, max_batches_held=2) as loader:
            addresses = set()
            for _ in range(12):
                addresses.add(next(loader)["input_ids"].ctypes.data)
        self.assertLessEqual(len(addresses), 4)

    def test_holders_beyond_the_bound_are_named(self):
        with self.direct() as loader:
            wanted = [batch.digest() for batch in loader]
        with self.direct(max_batches_held=2) as loader:
            first = next(loader)["labels"]
            second = next(loader)["loss_mask"][:, 1:]
            for _ in range(2):
                with self.assertRaisesRegex(
                    ballast.ResourceExhausted,
                    r"step 0, micro-batch 0 \(labels\); step 0, micro-batch 1 \(loss_mask\)"
                    r".*max_batches_held",
                ):
                    next(loader)
            del first
            self.assertEqual(next(loader).digest(), wanted[2])
            self.assertEqual(second.dtype, numpy.float32)

    def test_both_modules_stay_aligned_at_the_bound(self):
        ranks = {"vision": 0, "language": 1}
        options = {"dp_rank": ranks, "device": "cpu", "array": "numpy", "steps": STEPS}
        with ballast.Loader(self.direct_address, **options) as loader:
            wanted = [batch.digest() for batch in loader]
        with ballast.Loader(self.direct_address, max_batches_held=1, **options) as loader:
            got = []
            batch = next(loader)
            got.append(batch.digest())
            # Only language's memory is held: vision alone continues, once.
            ids = batch["input_ids"]
            del batch
            with self.assertRaises(ballast.ResourceExhausted):
                next(loader)
            del ids
            for batch in loader:
                got.append(batch.digest())
                del batch
        self.assertEqual(got, wanted)

    def test_a_clone_is_not_held(self):
        with self.direct(max_batches_held=1) as loader:
            batch = next(loader)
            clone = batch.clone()
            ids = batch["input_ids"].copy()
            del batch
            next(loader)
            self.assertTrue((clone["input_ids"] == ids).all())
            self.assertEqual(len(clone.samples), clone.totals.samples)

    def test_copies(self):
        with self.direct(max_batches_held=1) as loader:
            batch = next(loader)
            shares, *own = copy.copy(batch), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))
            for each in (shares, *own):
                self.assertIs(type(each), ballast.Batch)
                self.assertEqual(list(each), list(batch))
                self.assertTrue((each["input_ids"] == batch["input_ids"]).all())
                self.assertEqual((each.step, each.samples), (batch.step, batch.samples))
                self.assertEqual(each.totals, batch.totals)
            self.assertIs(shares["input_ids"], batch["input_ids"])
            self.assertEqual(shares.digest(), batch.digest())
            self.assertEqual(own[0].step_schedule()["step"], batch.step)
            with self.assertRaisesRegex(ballast.FailedPrecondition, "pickled"):
                own[1].step_schedule()
            # As Hugging Face's Trainer and Accelerate make one.
            items = ballast.Batch({key: value for key, value in batch.items()})
            self.assertIs(items["input_ids"], batch["input_ids"])
            with self.assertRaisesRegex(AttributeError, "step: found a batch .* another's items"):
                items.step
            del batch, shares, items
            next(loader)  # the others have memory of their own

    def test_type_checkers_know_every_tensor(self):
        names = set()
        for row in ballast.tensor_table():
            names |= {row.name} | ({row.name + "_host"} if row.memory == "listed" else set())
        self.assertEqual(set(get_args(ballast.TensorName)), names)

    def test_a_clone_is_checked_as_its_batch(self):
        """Images of other samples than the text, and a first stage without its images."""
        options = {"device": "cpu", "array": "numpy", "steps": 1}
        ranks = {"vision": 0, "language": 1}
        with ballast.Loader(self.direct_address, dp_rank=ranks, **options) as loader:
            batch = next(loader)
            clone = batch.clone()
            for found in (batch, clone, clone.clone()):
                with self.assertRaisesRegex(ballast.FailedPrecondition, "not the same samples"):
                    huggingface.packed(found)
                found.record_stream(0)
            with self.assertRaisesRegex(ballast.InvalidArgument, "a clone has none"):
                clone.digest()
        with self.direct(steps=1) as loader:
            self.assertTrue(on_first_stage(next(loader).clone()))

    def test_end(self):
        loader = self.direct(steps=1)
        self.assertEqual([(b.step, b.micro_batch) for b in loader], [(0, 0), (0, 1)])
        for _ in range(2):
            with self.assertRaises(StopIteration):
                next(loader)
        loader.close()
        with self.assertRaisesRegex(ballast.FailedPrecondition, "closed"):
            next(loader)

    def test_checkpoint(self):
        with self.direct(steps=4) as loader:
            digests = [(batch.step, batch.digest()) for batch in loader]
        with self.direct(steps=4) as loader:
            for _ in range(3):  # a step and a half
                next(loader)
            state = loader.state_dict()
            self.assertEqual(state["next_step"], 1)
            self.assertEqual(loader.state_dict(next_step=3)["next_step"], 3)
            for step in (-1, 2**64 + 3):
                with self.assertRaisesRegex(ballast.InvalidArgument, "next_step: found .*wanted"):
                    loader.state_dict(next_step=step)
                with self.assertRaisesRegex(ballast.InvalidArgument, "step: found .*wanted"):
                    loader.num_micro_batches(step)
            # An open loader continues there, too.
            loader.load_state_dict(state)
            batch = next(loader)
            self.assertEqual((batch.step, batch.digest()), digests[2])
        with self.direct(steps=3, state_dict=state) as loader:
            self.assertEqual([(b.step, b.digest()) for b in loader], digests[2:])
        with self.assertRaisesRegex(ballast.InvalidArgument, "state_dict"):
            self.direct(state_dict={"epoch": 3})
        with self.assertRaises(ballast.BallastError):
            self.direct(state_dict={"ballast_checkpoint": b"nonsense"})

    def test_errors(self):
        nobody = "unix:" + self.folder + "/nobody.sock"
        connection = ballast.Connection((nobody,), wait_for_server=0)
        with self.assertRaisesRegex(ballast.Unavailable, "nobody.sock") as caught:
            ballast.Loader(connection, device="cpu").open()
        self.assertEqual(caught.exception.status, "UNAVAILABLE")
        self.assertIsInstance(caught.exception, ConnectionError)
        with self.assertRaisesRegex(ballast.InvalidArgument, "rank 4"):
            self.direct(rank=4).open()
        with self.assertRaises(ballast.FailedPrecondition):
            self.direct(fingerprint="0" * 32).open()
        for options in ({"modules": "sound"}, {"modules": []}, {"device": "tpu"},
                        {"array": "lists"}, {"pixel_type": "int8"}, {"tensor": "push"},
                        {"normalisation": "none"}, {"dp_rank": {"vision": 0}}):  # fmt: skip
            options = {"device": "cpu", **options}
            with self.assertRaisesRegex(
                ballast.InvalidArgument, "^" + min(set(options) - {"device"}, default="device")
            ):
                ballast.Loader(self.direct_address, **options).open()

    def test_cancel(self):
        # Rank 0 waits for a rank that never comes.
        loader = ballast.Loader(
            self.address, "vision", device="cpu", array="numpy", communicator=ends("vision")[0]
        )
        loader.open()
        timer = threading.Timer(0.2, loader.cancel)
        timer.start()
        with self.assertRaises((ballast.Cancelled, ballast.Unavailable)):
            next(loader)
        timer.join()
        loader.close()

    def test_job(self):
        job = ballast.Connection.of(self.address).job()
        with self.direct() as loader:
            self.assertEqual(loader.job["data_fingerprint"], job["data_fingerprint"])
        self.assertEqual({m["module"]: m["dp"] for m in job["modules"]}, DP)
        self.assertEqual((job["global_batch"], job["delivery"]), (16, "exchange"))
        self.assertEqual(json.loads(json.dumps(job)), job)

    def test_timings_reach_a_server(self):
        with self.direct() as loader:
            batch = next(loader)
            self.assertIs(loader.report_timing(batch, 12.5), True)
            with self.assertRaises(ballast.InvalidArgument):
                loader.report_timing(batch, float("nan"))
            with self.assertRaises(ballast.InvalidArgument):
                loader.report_timing(batch, 12.5, module="vision")

    def test_a_timing_that_reaches_no_server_is_no_error(self):
        address = "unix:" + self.folder + "/c.sock"
        with self.server(self.folder + "/direct.yaml", address):
            loader = ballast.Loader(
                address, "language", dp_rank=0, device="cpu", array="numpy", steps=1
            )
            batch = next(loader)
        self.assertIs(loader.report_timing(batch, 12.5), False)
        loader.close()

    def test_structs_match_the_header(self):
        from ballast import _structs

        program = os.path.join(
            os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"],
            "tests/trainer_shim/python/struct_sizes",
        )  # fmt: skip
        lines = subprocess.run([program], stdout=subprocess.PIPE, check=True).stdout
        rows = [line.split() for line in lines.decode().splitlines()]
        self.assertEqual(len(rows), 8)
        for name, size, last in rows:
            kind = getattr(_structs, "".join(word.title() for word in name.split("_")))
            self.assertEqual(ctypes.sizeof(kind), int(size), name)
            self.assertEqual(getattr(kind, kind._fields_[-1][0]).offset, int(last), name)

    def test_version(self):
        self.assertRegex(ballast.library_version(), r"^\d+\.\d+\.\d+$")
        self.assertEqual(ballast.__version__, ballast.library_version())


if __name__ == "__main__":
    unittest.main()
