"""The real RerunDataIterator of Megatron-Core over a loader, in Megatron-LM's default mode
`validate_results`: it keeps every micro-batch of a step."""

import unittest
from unittest import mock

import torch
from megatron.core import rerun_state_machine as rerun

import ballast
from ballast import _rerun
from ballast.adapters import megatron_core, megatron_hooks
from tests.harness import tools

STEPS, MICRO_BATCHES = 3, 8
CONFIG = (
    tools.CONFIG.replace("{global: 16, micro: 8,", "{global: 16, micro: 2,")
    .replace("vision: {dp: 2}, language: {dp: 4}", "vision: {dp: 1}, language: {dp: 1}")
)  # fmt: skip


class Params:
    """A PackedSeqParams that keeps what it is given."""

    def __init__(self, **values):
        self.values = values


def to_lists(batch):
    """A batch as Megatron-LM's forward step has it: views of its tensors."""
    return list(megatron_core.get_batch(batch, Params, padded_only=True)), batch.step


class RerunTest(tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        path = cls.folder + "/eight.yaml"
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIG)
        tool = cls()
        tool.ok("ballast-server", "index", "--config", path)
        cls.address = "unix:" + cls.folder + "/a.sock"
        context = tool.server(path, cls.address)
        context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    def machine(self, mode):
        # The machine saves a GPU's random state without asking for a GPU.
        for name, value in (("get_rng_state", torch.get_rng_state()), ("set_rng_state", None)):
            patch = mock.patch.object(torch.cuda, name, return_value=value)
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(rerun.destroy_rerun_state_machine)
        rerun.initialize_rerun_state_machine(mode=mode)
        machine = rerun.get_rerun_state_machine()
        machine._reduce_any = lambda given: given  # one process, without a GPU
        return machine

    def loader(self, **options):
        loader = ballast.Loader(
            self.address, "language", device="cpu", array="torch", steps=STEPS, **options
        )
        self.addCleanup(loader.close)
        return loader

    def train(self, machine, iterator, count=MICRO_BATCHES, again=()):
        """Steps as Megatron-LM runs them; its state machine says whether to repeat one.
        Returns (step, ids) of all micro-batches that the model got."""
        got = []
        for step in range(STEPS):
            while machine.should_run_forward_backward(iterator):
                for _ in range(count):
                    (tokens, *_), number = next(iterator)
                    self.assertEqual(number, step)
                    got.append((number, tokens.clone()))
                if step in again and machine.state is rerun.RerunState.INITIAL_RUN:
                    machine.rerun_requested = True  # as validate_result does of a NaN
                elif machine.state is rerun.RerunState.RERUNNING_IN_PLACE:
                    machine.continue_requested = True
        return got

    def setUp(self):
        with self.loader() as loader:
            self.wanted = [(batch.step, batch["input_ids"].clone()) for batch in loader]
        self.assertEqual(len(self.wanted), STEPS * MICRO_BATCHES)

    def equal(self, found, wanted):
        self.assertEqual([step for step, _ in found], [step for step, _ in wanted])
        self.assertTrue(all((a == b).all() for (_, a), (_, b) in zip(found, wanted)))

    def test_all_micro_batches_of_a_step_are_kept(self):
        machine = self.machine(rerun.RerunMode.VALIDATE_RESULTS)
        for virtual_stages in (1, 2):
            hooks = megatron_hooks.DataIterator(
                self.loader(), to_lists, virtual_stages=virtual_stages
            )
            if virtual_stages == 1:
                iterator = rerun.RerunDataIterator(hooks)
                self.equal(self.train(machine, iterator), self.wanted)
                continue
            iterators = [rerun.RerunDataIterator(chunk) for chunk in hooks.iterators]
            for step in range(STEPS):
                while machine.should_run_forward_backward(iterators):
                    for iterator in iterators:  # the first chunk is a whole step ahead
                        first = step * MICRO_BATCHES
                        got = [next(iterator) for _ in range(MICRO_BATCHES)]
                        self.equal(
                            [(number, tokens) for (tokens, *_), number in got],
                            self.wanted[first : first + MICRO_BATCHES],
                        )

    def test_a_step_is_repeated_with_the_same_data(self):
        machine = self.machine(rerun.RerunMode.VALIDATE_RESULTS)
        hooks = megatron_hooks.DataIterator(self.loader(), to_lists)
        found = self.train(machine, rerun.RerunDataIterator(hooks), again=(1,))
        second = self.wanted[MICRO_BATCHES : 2 * MICRO_BATCHES]
        self.equal(
            found, self.wanted[: 2 * MICRO_BATCHES] + second + self.wanted[2 * MICRO_BATCHES :]
        )

    def test_a_loader_without_hooks(self):
        machine = self.machine(rerun.RerunMode.VALIDATE_RESULTS)
        iterator = rerun.RerunDataIterator(iter(self.loader()))
        for step in range(STEPS):
            while machine.should_run_forward_backward(iterator):
                got = [next(iterator) for _ in range(MICRO_BATCHES)]
                self.assertEqual([batch.step for batch in got], [step] * MICRO_BATCHES)

    def test_the_error_names_the_mode(self):
        machine = self.machine(rerun.RerunMode.VALIDATE_RESULTS)
        iterator = rerun.RerunDataIterator(
            megatron_hooks.DataIterator(self.loader(max_batches_held=4), to_lists)
        )
        with self.assertRaisesRegex(
            ballast.ResourceExhausted, r"rerun_mode is 'validate_results'.*keeps every micro-batch"
        ):
            self.train(machine, iterator)

    def test_disabled(self):
        self.assertIsNone(_rerun.mode())  # and makes no machine
        self.assertIsNone(rerun._GLOBAL_RERUN_STATE_MACHINE)
        machine = self.machine(rerun.RerunMode.DISABLED)
        self.assertIsNone(_rerun.mode())
        hooks = megatron_hooks.DataIterator(self.loader(), to_lists)
        self.equal(self.train(machine, rerun.RerunDataIterator(hooks)), self.wanted)

    def test_the_bound(self):
        def job(**more):
            modules = [{"dp": 2, "pp": 1}, {"dp": 4, "pp": 6}]
            return dict({"modules": modules, "global_batch": 64, "micro_batch": 16}, **more)

        ahead = 6 + 2
        # Scheduled with one sample a rank: 64 / 2 micro-batches, in groups of 3: 33.
        self.assertEqual(_rerun.batches_held(job()), 32 + ahead)
        ranges = [{"samples": 64}, {"samples": 128}]
        self.assertEqual(_rerun.batches_held(job(step_ranges=ranges)), 64 + ahead)
        self.assertEqual(_rerun.batches_held(job(virtual_pipeline_group=3)), 33 + ahead)
        self.assertEqual(_rerun.batches_held(job(micro_batch=1)), 64 + ahead)
        # Two ranks share a pack of one sample.
        self.assertEqual(_rerun.batches_held(job(dynamic_cp=2)), 64 + ahead)


if __name__ == "__main__":
    unittest.main()
