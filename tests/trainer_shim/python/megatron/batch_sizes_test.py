"""Sizes of steps by samples, compared with the installed megatron-core's calculators."""

import json
import logging
import random
import subprocess
import tempfile
import unittest

from megatron.core import num_microbatches_calculator as megatron

CONFIG = """
sources: [{name: mock, format: mock, lengths: {mode: lognormal, min: 1, max: 9, mean: 5, sigma: 1}}]
batch: {global: %d, micro: 2%s}
topology: {modules: {language: {dp: 2}}}
"""
MICRO = 2
STEPS = 500


def ours(size, more):
    """Samples of each of the first STEPS steps, by `ballast-server plan`."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(CONFIG % (size, more))
        file.flush()
        text = subprocess.run(
            ["server/ballast-server", "plan", "--config", file.name, "--changes", "--json"],
            check=True, stdout=subprocess.PIPE,
        ).stdout  # fmt: skip
    ranges = [json.loads(line) for line in text.decode().splitlines()]
    sizes = []
    for number, each in enumerate(ranges):
        end = ranges[number + 1]["step"] if number + 1 < len(ranges) else STEPS
        sizes += [each["samples"]] * (min(end, STEPS) - len(sizes))
    return sizes


def theirs(calculator):
    sizes, consumed = [], 0
    for _ in range(STEPS):
        calculator.update(consumed, True)
        sizes.append(calculator.get_current_running_global_batch_size())
        assert calculator.get() * MICRO == sizes[-1]
        consumed += sizes[-1]
    return sizes


class BatchSizesTest(unittest.TestCase):
    def setUp(self):
        logging.disable(logging.INFO)
        self.random = random.Random(21)

    def test_thresholds(self):
        calculator = getattr(megatron, "StepBatchsizeNumMicroBatchesCalculator", None)
        if calculator is None:
            print("SKIPPED: this megatron-core has no step_batch_size_schedule")
            return
        for _ in range(20):
            threshold, schedule = 0, [(0, 2 * self.random.randint(1, 20))]
            for _ in range(self.random.randint(1, 6)):
                threshold += self.random.randint(1, 900)
                schedule.append((threshold, 2 * self.random.randint(1, 20)))
            text = " ".join("%d:%d" % entry for entry in schedule)
            changes = ", ".join("{samples: %d, global: %d}" % entry for entry in schedule[1:])
            self.assertEqual(
                ours(schedule[0][1], ", changes: [%s]" % changes),
                theirs(calculator(1, MICRO, False, 1, text)),
                text,
            )

    def test_rampup(self):
        calculator = getattr(megatron, "RampupBatchsizeNumMicroBatchesCalculator", None)
        if calculator is None:
            print("SKIPPED: this megatron-core has no ramp-up; see megatron_rampup.json")
            return
        for _ in range(20):
            start, increment = 2 * self.random.randint(1, 9), 2 * self.random.randint(1, 4)
            size = start + increment * self.random.randint(1, 20)
            samples = self.random.randint(1, 9000)
            self.assertEqual(
                ours(size, ", rampup: {start: %d, increment: %d, samples: %d}"
                     % (start, increment, samples)),
                theirs(calculator(size, 1, MICRO, False, 1, start, increment, samples)),
            )  # fmt: skip


if __name__ == "__main__":
    unittest.main()
