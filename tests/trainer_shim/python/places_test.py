"""Batches of ranks at different places of a module's layout, without a GPU."""

import threading
import unittest

import ballast
import numpy
from ballast.adapters import megatron_bridge, megatron_core
from tests.harness import tools

CP, TP, STEPS = 2, 2, 2
LAYOUT = """
topology:
  modules: {vision: {dp: 2, tp: 1}, language: {dp: 2, tp: %d, pp: 3, cp: %d}}
balance:
  delivery: direct
"""


class PlacesTest(tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.address = cls.serve("a", TP, CP)
        # MimoModel cuts the sequence itself: context ranks are named as tensor ranks.
        cls.whole = cls.serve("b", TP * CP, 1)

    @classmethod
    def serve(cls, name, tp, cp):
        """The address of a server of a job of that layout, until the class ends."""
        with open(cls.config, encoding="utf-8") as file:
            text = file.read()
        begin, end = text.index("topology:"), text.index("serve:")
        config = f"{cls.folder}/{name}.yaml"
        with open(config, "w", encoding="utf-8") as file:
            file.write(text[:begin] + LAYOUT.lstrip() % (tp, cp) + text[end:])
        return cls.until_class_ends(cls().server(config, f"unix:{cls.folder}/{name}.sock"))[0]

    def loader(self, module="language", address=None, **options):
        return ballast.Loader(
            address or self.address, module, device="cpu", array="numpy", steps=STEPS, **options
        )

    def first(self, **options):
        with self.loader(**options) as loader:
            return next(loader).clone()

    def test_stages(self):
        lengths = {"cu_seqlens", "cu_seqlens_padded", "cu_seqlens_host", "cu_seqlens_padded_host",
                   "position_ids", "max_seqlen"}  # fmt: skip
        stages = [set(self.first(pp_rank=stage)) for stage in range(3)]
        self.assertEqual(stages[0], lengths | {"input_ids"})
        self.assertEqual(stages[1], lengths)
        self.assertEqual(stages[2], lengths | {"labels", "loss_mask"})
        wants = self.first(pp_rank=1, needs_input_ids=True, needs_labels=True)
        self.assertEqual(set(wants), lengths | {"input_ids", "labels", "loss_mask"})

    def test_context_slices_make_up_the_whole(self):
        parts = [self.first(cp_rank=rank) for rank in range(CP)]
        places = parts[0]["cu_seqlens_padded"]
        real = parts[0]["cu_seqlens"]
        total = int(places[-1])
        whole = numpy.full(total, -1, numpy.int64)
        for rank, part in enumerate(parts):
            self.assertEqual(part["input_ids"].shape, (1, total // CP))
            self.assertTrue((part["cu_seqlens_padded"] == places).all())
            # Each sample has 2*cp equal chunks; rank r has r and 2*cp-1-r.
            indices = []
            for begin, end in zip(places[:-1].tolist(), places[1:].tolist()):
                self.assertEqual((end - begin) % (2 * CP), 0)
                chunk = (end - begin) // (2 * CP)
                for number in (rank, 2 * CP - 1 - rank):
                    indices.extend(range(begin + number * chunk, begin + (number + 1) * chunk))
            whole[indices] = part["position_ids"][0, 0]
        # Positions count from 0 in a text, and are 0 in padding.
        self.assertTrue((whole >= 0).all())
        self.assertTrue((whole[places[:-1]] == 0).all())
        mask = megatron_core.padding_mask(parts[0])[0]
        self.assertEqual(int(mask.sum()), total - int(real[-1]))
        self.assertTrue((whole[mask] == 0).all())
        tokens, labels, _, _, positions, params, padding = megatron_core.get_batch(parts[0])
        self.assertIs(tokens, parts[0]["input_ids"])
        self.assertIsNone(labels)
        self.assertIsNone(padding)
        self.assertEqual(positions.shape[-1], total // CP)
        self.assertEqual(params["cu_seqlens_q_padded"].tolist(), places.tolist())

    def test_stages_agree_on_packing_for_bridge(self):
        with self.assertRaisesRegex(ballast.FailedPrecondition, "cut for a context rank"):
            megatron_bridge.forward_inputs(self.first(pp_rank=0))
        stages = [
            megatron_bridge.forward_inputs(self.first(pp_rank=stage, address=self.whole))
            for stage in (0, 2)
        ]
        for key, value in stages[0]["packing_kwargs"].items():
            self.assertTrue(numpy.array_equal(stages[1]["packing_kwargs"][key], value), key)
        for stage in stages:
            self.assertIsNone(stage["modality_inputs"])

    def test_tensor_rank_0_pulls_for_its_peers(self):
        ends = ballast.Communicator.in_process(TP)
        got = [[] for _ in range(TP)]
        errors = []

        def run(rank):
            try:
                with self.loader(
                    tp_rank=rank, pp_rank=2, tensor="broadcast", tensor_communicator=ends[rank]
                ) as loader:
                    for batch in loader:
                        got[rank].append((batch.step, batch.micro_batch, batch.digest()))
            except Exception as error:  # raised below
                errors.append(error)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(TP)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(tools.TIMEOUT_S)
        self.assertEqual(errors, [])
        with self.loader(tp_rank=1, pp_rank=2) as loader:
            wanted = [(b.step, b.micro_batch, b.digest()) for b in loader]
        self.assertEqual(len(wanted), 2 * STEPS)
        self.assertEqual(got, [wanted] * TP)


if __name__ == "__main__":
    unittest.main()
