"""The README's lines on a machine without GPUs: any dp, one process or several; and
what is said where something is missing."""

import os
import re
import subprocess
import sys
import types
import unittest
import warnings
from unittest import mock

import ballast
from ballast._arguments import _LAUNCHERS
from tests.harness import tools

# Ranks of a job as processes, each with the README's lines. Prints the samples.
TRAINER = """
import ballast, sys
with ballast.Loader(sys.argv[1], device="cpu", array="dlpack", steps=2) as loader:
    for batch in loader:
        print(loader.step, *(sample.position for sample in batch.samples))
"""


class LaptopTest(tools.CorpusTest):
    def job(self, dp):
        text = tools.CONFIG.replace("global: 16, micro: 8", "global: 24, micro: 12")
        text = text.replace("{vision: {dp: 2}, language: {dp: 4}}",
                            "{vision: {dp: %d}, language: {dp: %d}}" % (dp, dp))  # fmt: skip
        path = self.write("dp%d.yaml" % dp, text)
        self.ok("ballast-server", "index", "--config", path)
        return path

    def positions(self, lines):
        """The positions of each step's samples, sorted."""
        found = {}
        for line in lines:
            step, *positions = map(int, line.split())
            found.setdefault(step, []).extend(positions)
        return {step: sorted(positions) for step, positions in found.items()}

    def test_one_process_for_any_dp(self):
        for dp in (1, 2, 3, 4, 6):
            with self.subTest(dp=dp), self.server(self.job(dp), "127.0.0.1:0") as (address,):
                lines = []
                for rank in range(dp):
                    with ballast.Loader(address, dp_rank=rank, device="cpu", array="dlpack",
                                        steps=2) as loader:  # fmt: skip
                        for batch in loader:
                            positions = [sample.position for sample in batch.samples]
                            lines.append(" ".join(map(str, [loader.step, *positions])))
                self.assertEqual(
                    self.positions(lines), {0: list(range(24)), 1: list(range(24, 48))}
                )

    def test_several_processes_without_a_rank_in_the_script(self):
        for dp in (2, 3):
            with self.subTest(dp=dp), self.server(self.job(dp), "127.0.0.1:0") as (address,):
                # As torchrun sets them.
                processes = [
                    subprocess.Popen(
                        [sys.executable, "-c", TRAINER, address], stdout=subprocess.PIPE,
                        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(dp)},
                    )
                    for rank in range(dp)
                ]  # fmt: skip
                lines = []
                for process in processes:
                    out, _ = process.communicate(timeout=tools.TIMEOUT_S)
                    self.assertEqual(process.returncode, 0)
                    lines += out.decode().splitlines()
                self.assertEqual(
                    self.positions(lines), {0: list(range(24)), 1: list(range(24, 48))}
                )

    def under(self, rank, size):
        return mock.patch.dict(os.environ, {"RANK": str(rank), "WORLD_SIZE": str(size)})

    def test_ranks_that_do_not_fit_the_trainer(self):
        with self.server(self.job(4), "127.0.0.1:0") as (address,):
            with self.under(1, 2):
                loader = ballast.Loader(address, device="cpu", array="dlpack")
                with self.assertRaisesRegex(
                    ballast.InvalidArgument,
                    "^dp_rank: found none in process 1 of 2, .*4 data-parallel ranks of vision",
                ):
                    loader.open()
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    with ballast.Loader(address, dp_rank=1, device="cpu", array="dlpack"):
                        pass
                (warning,) = caught
                self.assertIn("nobody trains on the samples", str(warning.message))
            with self.under(1, 4), warnings.catch_warnings():
                warnings.simplefilter("error")
                with ballast.Loader(address, device="cpu", array="dlpack") as loader:
                    self.assertEqual(loader._place.rank("dp_rank", "vision"), 1)
            with self.assertRaisesRegex(
                ballast.InvalidArgument,
                r"4 data-parallel ranks; rank 4 .*topology.modules.vision.dp",
            ):
                ballast.Loader(address, dp_rank=4, device="cpu", array="dlpack").open()

    def test_a_job_of_one_rank_is_for_one_process(self):
        """As `init` writes it on a machine without GPUs. Ranks of other kinds are processes."""
        options = {"device": "cpu", "array": "dlpack"}
        with self.server(self.job(1), "127.0.0.1:0") as (address,):
            for rank in range(2):
                with self.under(rank, 2):
                    loader = ballast.Loader(address, **options)
                    with self.assertRaisesRegex(
                        ballast.InvalidArgument,
                        "^dp_rank: found none in process %d of 2, .*1 data-parallel rank of "
                        "vision.*topology.modules" % rank,
                    ):
                        loader.open()
                    # Modules in processes of their own, and a rank that the caller names.
                    for named in ({"modules": "language"}, {"dp_rank": 0}):
                        with ballast.Loader(address, **named, **options) as loader:
                            self.assertEqual(len(next(loader).samples), 12)
        with open(self.job(1), encoding="utf-8") as file:
            text = file.read().replace("language: {dp: 1}", "language: {dp: 1, tp: 2}")
        path = self.write("tensor.yaml", text)
        with self.server(path, "127.0.0.1:0") as (address,), self.under(1, 2):
            with ballast.Loader(address, tp_rank={"vision": 0, "language": 1}, **options) as loader:
                self.assertEqual(len(next(loader).samples), 12)

    def warnings_of(self, address, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with ballast.Loader(address, device="cpu", array="dlpack", **options) as loader:
                rank = loader._place.rank("dp_rank", "vision")
        return rank, [str(warning.message) for warning in caught]

    def alone(self):
        """As without a launcher."""
        return mock.patch.dict(os.environ, {name: "" for pair in _LAUNCHERS for name in pair})

    def test_a_process_that_knows_of_no_others(self):
        with self.server(self.job(4), "127.0.0.1:0") as (address,), self.alone():
            rank, (warning,) = self.warnings_of(address)
            self.assertEqual(rank, 0)
            self.assertIn("trainer has 1 process: nobody trains on the samples", warning)
            self.assertEqual(self.warnings_of(address, dp_rank=3), (3, []))
        with self.server(self.job(1), "127.0.0.1:0") as (address,), self.alone():
            self.assertEqual(self.warnings_of(address), (0, []))

    def test_ranks_of_other_launchers(self):
        with self.server(self.job(4), "127.0.0.1:0") as (address,):
            for rank, size in _LAUNCHERS[1:]:
                with self.alone(), mock.patch.dict(os.environ, {rank: "2", size: "4"}):
                    self.assertEqual(self.warnings_of(address), (2, []))

    def test_a_rank_within_a_node_is_noticed(self):
        with self.server(self.job(4), "127.0.0.1:0") as (address,), self.under(2, 4):
            rank, (warning,) = self.warnings_of(address, dp_rank=0)
            self.assertEqual(rank, 0)
            self.assertIn("dp_rank: found 0 in process 2 of 4", warning)
            self.assertEqual(self.warnings_of(address, dp_rank=2), (2, []))

    def test_context_ranks_are_named(self):
        with open(self.job(2), encoding="utf-8") as file:
            text = file.read().replace("language: {dp: 2}", "language: {dp: 2, cp: 2}")
        path = self.write("context.yaml", text)
        with self.server(path, "127.0.0.1:0") as (address,), self.under(1, 4):
            options = {"modules": "language", "dp_rank": 0, "device": "cpu", "array": "dlpack"}
            with self.assertRaisesRegex(
                ballast.InvalidArgument, "^cp_rank: found none in process 1 of 4, .*same part"
            ):
                ballast.Loader(address, **options).open()
            with ballast.Loader(address, cp_rank=1, **options) as loader:
                self.assertEqual(loader.job["modules"][1]["cp"], 2)

    def test_workers_of_a_data_loader_are_refused(self):
        for workers in (1, 2):
            worker = types.SimpleNamespace(id=1, num_workers=workers)
            module = types.SimpleNamespace(get_worker_info=lambda: worker)
            with self.subTest(workers), mock.patch.dict(sys.modules, {"torch.utils.data": module}):
                loader = ballast.Loader(
                    ballast.Connection(("127.0.0.1:1",), wait_for_server=0), device="cpu",
                    array="dlpack",
                )  # fmt: skip
                with self.assertRaises(ballast.BallastError) as raised:
                    next(loader)
                told = "worker 1 of 2; each of them would deliver every batch"
                self.assertEqual(told in str(raised.exception), workers == 2)
                if workers == 1:
                    with mock.patch("os.getpid", return_value=1):
                        with self.assertRaisesRegex(ballast.FailedPrecondition, "the trainer's"):
                            next(loader)

    def test_arguments_say_what_is_wanted(self):
        for options, message in (
            ({"dp_rank": -1}, "dp_rank: found -1; wanted a whole number from 0 on"),
            ({"dp_rank": "0"}, "dp_rank: found '0'; wanted a whole number from 0 on"),
            ({"dp_rank": 2**32}, "dp_rank: found 4294967296; wanted a whole number from 0 to "),
            ({"tp_rank": 1.5}, "tp_rank: found 1.5; wanted a whole number"),
            ({"start_step": -1}, "start_step: found -1; wanted"),
            ({"steps": -1}, "steps: found -1; wanted"),
            ({"steps": 2**64}, "steps: found 18446744073709551616; wanted"),
            ({"max_batches_held": -1}, "max_batches_held: found -1; wanted"),
            ({"start_step": 2, "state_dict": {}}, "start_step: found 2 with a state_dict"),
            ({"max_bytes": -1}, "max_bytes: found -1; wanted"),
            ({"device": "mps"}, 'take device="cpu" and move the tensors'),
            ({"device": "gpu"}, 'wanted "cuda", "cuda:N" or "cpu"'),
        ):
            with self.subTest(options):
                options = {"device": "cpu", "array": "dlpack", **options}
                with self.assertRaisesRegex(ballast.InvalidArgument, re.escape(message)):
                    ballast.Loader("127.0.0.1:7070", **options)
        with self.assertRaisesRegex(ballast.InvalidArgument, "^servers: found none; wanted"):
            ballast.Loader("", device="cpu", array="dlpack")

    def test_a_missing_array_library_is_named(self):
        with mock.patch("importlib.util.find_spec", return_value=None):
            with mock.patch.dict(sys.modules):
                sys.modules.pop("torch", None)
                with self.assertRaisesRegex(ballast.InvalidArgument, "torch is not installed; pip"):
                    ballast.Loader("127.0.0.1:7070", device="cpu", array="torch")
                with self.assertRaisesRegex(ballast.InvalidArgument, 'a GPU take device="cpu"$'):
                    ballast.Loader("127.0.0.1:7070")

    def test_without_a_gpu_the_error_names_the_cpu(self):
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("there is a GPU")
        with self.server(self.job(1), "127.0.0.1:0") as (address,):
            with mock.patch.dict(sys.modules, {"torch": None}):
                loader = ballast.Loader(address, array="dlpack")
                with self.assertRaisesRegex(ballast.BallastError, r'Loader\(device="cpu"\)'):
                    loader.open()


if __name__ == "__main__":
    unittest.main()
