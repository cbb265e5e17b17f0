"""The adapter for Megatron-Core's LLaVAModel, on batches of tiles."""

import unittest

import numpy

import ballast
from ballast.adapters import megatron_llava, padded
from ballast.errors import FailedPrecondition, InvalidArgument


class LlavaTest(unittest.TestCase):
    """Images of 2 and 1 tiles of 3 tokens in the first sample, none in the second, one
    in the third; samples at multiples of 4."""

    IMAGE = 50
    SAMPLES = [[7, *[50] * 6, 8, *[50] * 3, 9], [1, 2, 3], [50, 50, 50, 4]]

    def given(self):
        row = {"input_ids": [], "labels": [], "loss_mask": [], "position_ids": []}
        bounds, places = [0], [0]
        for ids in self.SAMPLES:
            pad = [0] * (-len(ids) % 4)
            labels = [t if t != self.IMAGE else -100 for t in ids[1:]] + [-100]
            row["input_ids"] += ids + pad
            row["labels"] += labels + [-100] * len(pad)
            row["loss_mask"] += [float(label != -100) for label in labels] + pad
            row["position_ids"] += list(range(len(ids))) + pad
            bounds.append(bounds[-1] + len(ids))
            places.append(len(row["input_ids"]))
        batch = ballast.Batch({key: numpy.array([value]) for key, value in row.items()})
        batch["cu_seqlens"] = numpy.array(bounds, numpy.int32)
        batch["cu_seqlens_padded"] = numpy.array(places, numpy.int32)
        batch["max_seqlen"] = 12
        batch["pixel_values"] = numpy.arange(4)[:, None, None, None] * numpy.ones((4, 3, 2, 2))
        return batch

    def test_runs_become_tokens(self):
        given = self.given()
        before = {key: value.copy() for key, value in given.items() if key != "max_seqlen"}
        inputs = megatron_llava.forward_inputs(given, image_token=self.IMAGE, tokens_per_tile=3)
        self.assertEqual(inputs["input_ids"].tolist(), [[7, -200, 8, -200, 9, 1, 2, 3, 0, -200, 4]])
        self.assertEqual(inputs["num_image_tiles"].tolist(), [2, 1, 1])
        self.assertEqual(inputs["num_image_tiles"].dtype, numpy.int32)
        self.assertEqual(inputs["images"][:, 0, 0, 0].tolist(), [0, 1, 2, 3])
        self.assertIsNone(inputs["attention_mask"])
        # What the model makes of it: each image token becomes its tiles' embeddings, and
        # each label but theirs moves along.
        ids, labels, mask, positions = [], [], [], []
        tiles = iter(inputs["num_image_tiles"].tolist())
        for token, label, weight, place in zip(
            *(inputs[key][0] for key in ("input_ids", "labels", "loss_mask", "position_ids"))
        ):
            count = next(tiles) * 3 if token == -200 else 1
            ids += [self.IMAGE if token == -200 else token] * count
            labels += [-100] * (count - 1) + [label]
            mask += [0] * (count - 1) + [weight]
            positions += range(place - count + 1, place + 1)
        self.assertEqual(ids, given["input_ids"][0].tolist())
        self.assertEqual(labels, given["labels"][0].tolist())
        self.assertEqual(mask, given["loss_mask"][0].tolist())
        self.assertEqual(positions, given["position_ids"][0].tolist())
        self.assertEqual(
            inputs["packed_seq_params"]["cu_seqlens_q_padded"].tolist(), [0, 12, 16, 20]
        )
        for key, value in before.items():  # a batch's memory is the loader's
            self.assertTrue((given[key] == value).all(), key)

    def test_rows(self):
        given = self.given()
        wanted = [[7, -200, 8, -200, 9], [1, 2, 3, 6, 6], [-200, 4, 6, 6, 6]]
        inputs = megatron_llava.padded_inputs(
            given, image_token=self.IMAGE, tokens_per_tile=3, pad=6
        )
        self.assertEqual(inputs["input_ids"].tolist(), wanted)
        self.assertEqual(
            inputs["labels"].tolist(),
            [[-100, 8, -100, 9, -100], [2, 3, -100, -100, -100], [4, -100, -100, -100, -100]],
        )
        self.assertEqual(inputs["loss_mask"].sum(), given["loss_mask"].sum())
        self.assertIsNone(inputs["packed_seq_params"])
        rows = padded.rows(given, pad=6)
        rows.update(pixel_values=given["pixel_values"], max_seqlen=12)
        again = megatron_llava.forward_inputs(rows, image_token=self.IMAGE, tokens_per_tile=3)
        self.assertEqual(again["num_image_tiles"].tolist(), [2, 1, 1])

    def test_refusals(self):
        for tokens, said in (
            (4, "run 0 .*found 6, wanted a multiple of tokens_per_tile, 4"),
            (1, "12 tiles for 4 tiles: tokens_per_tile is 1"),
        ):
            with self.assertRaisesRegex(InvalidArgument, said):
                megatron_llava.forward_inputs(
                    self.given(), image_token=self.IMAGE, tokens_per_tile=tokens
                )
        given = self.given()
        given["position_ids"] = numpy.stack([given["position_ids"]] * 3)
        with self.assertRaisesRegex(InvalidArgument, "position_ids: found 3 axes"):
            megatron_llava.forward_inputs(given, image_token=self.IMAGE, tokens_per_tile=3)
        given = self.given()
        given.dummy_image = True
        with self.assertRaisesRegex(
            FailedPrecondition, "found a dummy image.*megatron_llava.*Mimo"
        ):
            megatron_llava.forward_inputs(given, image_token=self.IMAGE, tokens_per_tile=3)


if __name__ == "__main__":
    unittest.main()
