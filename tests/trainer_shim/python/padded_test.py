"""Padded batches of real loaders, beside the packed ones of the same samples."""

import unittest

import ballast
import numpy
from ballast.adapters import padded
from tests.harness import tools

STEPS, DP, CP = 2, 2, 2
LAYOUT = """
topology:
  modules: {vision: {dp: 2}, language: {dp: %d, pp: 2, cp: %d}}
balance: {delivery: direct, equal_count: true}
packing: {mode: %s}
"""


class PaddedTest(tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addresses = {
            (mode, cp): cls.serve("%s%d" % (mode, cp), mode, cp)
            for mode in ("shard", "padded")
            for cp in (1, CP)
        }

    @classmethod
    def serve(cls, name, mode, cp):
        """The address of a server of a job of that layout, until the class ends."""
        with open(cls.config, encoding="utf-8") as file:
            text = file.read()
        begin, end = text.index("topology:"), text.index("serve:")
        config = f"{cls.folder}/{name}.yaml"
        with open(config, "w", encoding="utf-8") as file:
            file.write(text[:begin] + LAYOUT.lstrip() % (DP, cp, mode) + text[end:])
        return cls.until_class_ends(cls().server(config, f"unix:{cls.folder}/{name}.sock"))[0]

    def batches(self, mode, cp=1, **options):
        options.setdefault("needs_labels", True)
        loader = ballast.Loader(
            self.addresses[mode, cp], "language", device="cpu", array="numpy", steps=STEPS,
            **options,
        )  # fmt: skip
        with loader:
            return [batch.clone() for batch in loader]

    def test_rows_are_those_of_the_packed_batch(self):
        lengths = {}
        for rank in range(DP):
            pairs = zip(self.batches("padded", dp_rank=rank), self.batches("shard", dp_rank=rank))
            for rows, packed in pairs:
                width = rows.max_seqlen
                where = (rows.step, rows.micro_batch)
                self.assertEqual(lengths.setdefault(where, width), width)  # on all ranks
                wanted = padded.rows(packed, pad=int(packed["input_ids"][0, -1]), length=width)
                real = wanted["attention_mask"]
                wanted["input_ids"] = numpy.where(real, wanted["input_ids"], rows["input_ids"])
                self.assertEqual(set(rows), {*wanted, "max_seqlen"})
                self.assertEqual(rows["attention_mask"].dtype, bool)
                for key, value in wanted.items():
                    numpy.testing.assert_array_equal(rows[key], value, key)
                # What is not real is one id, the pad id.
                self.assertLessEqual(len(set(rows["input_ids"][~real].tolist())), 1)
                count = len(rows.samples)
                self.assertEqual(rows.totals.padded_tokens, count * width)
                self.assertEqual(rows.totals.tokens, int(real.sum()))
        self.assertGreater(len(set(lengths.values())), 1)  # the longest sample's

    def test_stages(self):
        first = self.batches("padded", needs_labels=False)[0]
        last = self.batches("padded", needs_labels=False, pp_rank=1)[0]
        both = {"position_ids", "attention_mask", "max_seqlen"}
        self.assertEqual(set(first), both | {"input_ids"})
        self.assertEqual(set(last), both | {"labels", "loss_mask"})
        self.assertEqual(first["input_ids"].shape, last["labels"].shape)

    def test_context_ranks_have_their_pieces_of_every_row(self):
        # The piece lengths are whole because rows are multiples of 2 * CP.
        parts = [self.batches("padded", CP, cp_rank=rank) for rank in range(CP)]
        for number, whole in enumerate(self.batches("shard", CP, cp_rank=0)):
            width = parts[0][number].max_seqlen
            piece = width // (2 * CP)
            rows = []
            for rank in range(CP):
                ids = parts[rank][number]["input_ids"]
                self.assertEqual(ids.shape, (len(whole.samples), width // CP))
                rows.append((rank, ids[:, :piece]))
                rows.append((2 * CP - 1 - rank, ids[:, piece:]))
            joined = numpy.concatenate([ids for _, ids in sorted(rows, key=lambda r: r[0])], 1)
            mask = numpy.concatenate([part[number]["attention_mask"] for part in parts], 1)
            self.assertEqual(int(mask.sum()), whole.totals.tokens)
            # The same rows from a server without context ranks: the order of samples
            # does not depend on cp.
            self.assertEqual(joined.shape, (len(whole.samples), width))
            wanted = self.batches("padded")[number]["input_ids"]
            kept = min(width, wanted.shape[1])
            numpy.testing.assert_array_equal(joined[:, :kept], wanted[:, :kept])


if __name__ == "__main__":
    unittest.main()
