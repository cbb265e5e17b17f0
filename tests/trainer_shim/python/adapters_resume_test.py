"""Bridge's hooks on real loaders: a checkpoint resumes at another dp size, and language
ranks' image tokens are those of their vision rank. Adapters refuse others' images."""

import types
import unittest

import numpy

import ballast
from ballast.adapters import huggingface
from ballast.adapters.megatron_bridge import Mimo, forward_inputs
from ballast.adapters.megatron_hooks import DataIterator
from tests.harness import tools

STEPS = 4
TOPOLOGY = """
topology:
  modules: {vision: {dp: %d}, language: {dp: %d}}
balance: {delivery: direct}
"""


class ResumeTest(tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addresses = {}
        for sizes in ((2, 2), (1, 2), (1, 1)):
            name = "dp%d%d" % sizes
            server = cls().server(
                cls.configured(name, sizes), "unix:%s/%s.sock" % (cls.folder, name)
            )
            (cls.addresses[sizes],) = cls.until_class_ends(server)

    @classmethod
    def configured(cls, name, sizes):
        with open(cls.config, encoding="utf-8") as file:
            text = file.read()
        begin, end = text.index("topology:"), text.index("serve:")
        path = cls.folder + "/" + name + ".yaml"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text[:begin] + (TOPOLOGY % sizes).lstrip() + text[end:])
        return path

    def iterator(self, sizes, module, rank, **options):
        loader = ballast.Loader(
            self.addresses[sizes], module, dp_rank=rank, device="cpu", array="numpy",
            steps=STEPS, **options,
        )  # fmt: skip
        self.addCleanup(loader.close)
        return DataIterator(loader, lambda batch: (batch.step, [s.position for s in batch.samples]))

    def step(self, iterators, step):
        """Positions of all ranks' samples of a step."""
        found = set()
        for iterator in iterators:
            for _ in range(iterator.num_micro_batches(step)):
                number, positions = next(iterator)
                self.assertEqual(number, step)
                found.update(positions)
        return found

    def test_resume_at_another_dp(self):
        before = [self.iterator((2, 2), "language", rank) for rank in range(2)]
        seen = [self.step(before, step) for step in range(2)]
        for iterator in before:
            iterator.num_micro_batches(2)  # what is only looked at is not lost
        states = [iterator.iterable.save_state() for iterator in before]
        self.assertEqual(states[0], states[1])
        self.assertEqual(states[0]["next_step"], 2)
        after = self.iterator((1, 1), "language", 0)
        after.iterable.restore_state(states[1])
        for step in (2, 3):
            seen.append(self.step([after], step))
        for step, positions in enumerate(seen):
            self.assertEqual(positions, set(range(16 * step, 16 * (step + 1))))

    def test_start_at_train_states_step(self):
        iterator = self.iterator((1, 1), "language", 0, start_step=2)
        self.assertEqual(self.step([iterator], 2), set(range(32, 48)))

    def test_image_tokens_of_language_peers(self):
        address = self.addresses[(1, 2)]
        options = {"device": "cpu", "array": "numpy", "steps": STEPS, "max_batches_held": 64}
        with (
            ballast.Loader(address, "vision", **options) as vision,
            ballast.Loader(address, "language", dp_rank=0, **options) as first,
            ballast.Loader(address, "language", dp_rank=1, **options) as second,
        ):
            job = dict(vision.job, colocated=False)
            image = job["model"]["token_ids"]["image"]
            stand_in = types.SimpleNamespace(job=job, keep_schedules=vision.keep_schedules)
            to_mimo = Mimo(stand_in, dummy_image="drop")
            images = 0
            # All are taken before the first is looked at, as by a trainer that prefetches.
            for batches in zip(list(vision), first, second):
                rows = to_mimo(batches[0])["input_ids"]
                self.assertEqual(rows.shape[0], 2)
                for row, peer in zip(rows, batches[1:]):
                    tokens = int((peer["input_ids"] == image).sum())
                    self.assertEqual(int((row == image).sum()), tokens)
                    images += tokens
            self.assertGreater(images, 0)

    def test_images_of_other_samples_are_refused(self):
        """A process may have other ranks of vision than of language; models that put a
        rank's own images into its text would take those of other samples."""
        for sizes, ranks, same in (
            ((2, 2), {"vision": 1, "language": 1}, True),
            ((2, 2), {"vision": 0, "language": 1}, False),
            ((1, 2), {"vision": 0, "language": 0}, False),
            ((1, 2), {"vision": 0, "language": 1}, False),
        ):
            with (
                self.subTest(sizes=sizes, ranks=ranks),
                ballast.Loader(
                    self.addresses[sizes], dp_rank=ranks, device="cpu", array="numpy", steps=1
                ) as loader,
            ):
                batch = next(loader)
                rows = numpy.zeros((4, 1))

                def exchanged(batch):
                    return len(ballast.exchange_embeddings(rows, batch)) > 0

                for take in (huggingface.unpacked, huggingface.packed, forward_inputs, exchanged):
                    if same:
                        self.assertTrue(take(batch))
                        continue
                    with self.assertRaisesRegex(
                        ballast.FailedPrecondition,
                        r"vision rank %d\).*language rank %d\).*same dp_rank"
                        % tuple(ranks.values()),
                    ):
                        take(batch)


if __name__ == "__main__":
    unittest.main()
