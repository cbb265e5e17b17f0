"""The adapters, on a batch whose values are formulas of (sample, place)."""

import types
import unittest

import numpy

import ballast
from ballast import embeddings
from ballast.adapters import huggingface, huggingface_audio, megatron_bridge, megatron_core
from ballast.adapters import megatron_lm
from ballast.errors import FailedPrecondition, InvalidArgument

# Real lengths, places at multiples of 4, and each sample's images (t, h, w).
LENGTHS = [5, 8, 2]
PADDED = [8, 8, 4]
IMAGES = [[(1, 2, 4)], [], [(1, 2, 2), (1, 4, 2)]]
PAD, TOTAL = 9, sum(PADDED)


def token(sample, i):
    return 100 * (sample + 1) + i


def batch(tight=False):
    """The batch of a colocated rank of both modules."""
    padded = LENGTHS if tight else PADDED
    rows = {key: [] for key in ("input_ids", "labels", "loss_mask", "position_ids")}
    for sample, (length, room) in enumerate(zip(LENGTHS, padded)):
        for i in range(room):
            real = i < length
            rows["input_ids"].append(token(sample, i) if real else PAD)
            # The last token of a sample has nothing to predict.
            rows["labels"].append(token(sample, i + 1) if i + 1 < length else -100)
            rows["loss_mask"].append(float(i + 1 < length))
            rows["position_ids"].append(i if real else 0)
    grid = [image for images in IMAGES for image in images]
    result = {key: numpy.array([value], numpy.int64) for key, value in rows.items()}
    result["loss_mask"] = result["loss_mask"].astype(numpy.float32)
    one = result["position_ids"]
    result["position_ids"] = numpy.stack([one, one + 1000, one + 2000])
    result["cu_seqlens"] = numpy.cumsum([0, *LENGTHS]).astype(numpy.int32)
    result["cu_seqlens_padded"] = numpy.cumsum([0, *padded]).astype(numpy.int32)
    result["max_seqlen"] = max(padded)
    patches = sum(t * h * w for t, h, w in grid)
    result["pixel_values"] = numpy.arange(patches, dtype=numpy.float32)[:, None]
    result["image_grid_thw"] = numpy.array(grid, numpy.int64)
    return result


class BridgeTest(unittest.TestCase):
    def test_both_modules(self):
        given = batch()
        inputs = megatron_bridge.forward_inputs(given)
        self.assertEqual(
            set(inputs),
            {"input_ids", "position_ids", "labels", "loss_mask", "attention_mask",
             "modality_inputs", "packing_kwargs"},
        )  # fmt: skip
        for key in ("input_ids", "position_ids", "labels", "loss_mask"):
            self.assertIs(inputs[key], given[key])
        self.assertIsNone(inputs["attention_mask"])
        fields = inputs["modality_inputs"]["images"]["qwen_visual"]
        self.assertIs(fields["hidden_states"], given["pixel_values"])
        self.assertIs(fields["grid_thw"], given["image_grid_thw"])
        packing = inputs["packing_kwargs"]
        for side in ("q", "kv"):
            self.assertEqual(packing["cu_seqlens_" + side].tolist(), [0, 8, 16, 20])
            self.assertEqual(packing["cu_seqlens_" + side].dtype, numpy.int32)
            self.assertEqual(packing["cu_seqlens_%s_padded" % side].tolist(), [0, 8, 16, 20])
            self.assertIs(type(packing["max_seqlen_" + side]), int)
            self.assertEqual(packing["max_seqlen_" + side], 8)
        self.assertEqual(len(packing), 6)

    def test_names(self):
        inputs = megatron_bridge.forward_inputs(
            batch(), modality="pictures",
            encoders={"tower": {"x": "pixel_values", "shape": "image_grid_thw"}},
        )  # fmt: skip
        self.assertEqual(set(inputs["modality_inputs"]["pictures"]["tower"]), {"x", "shape"})

    def test_tight_pack_has_one_array(self):
        packing = megatron_bridge.forward_inputs(batch(tight=True))["packing_kwargs"]
        arrays = [v.tolist() for v in packing.values() if not isinstance(v, int)]
        self.assertEqual(arrays, [[0, 5, 13, 15]] * 4)

    def test_what_a_role_lacks_is_none(self):
        language = {k: v for k, v in batch().items() if k not in ("pixel_values", "image_grid_thw")}
        for key in ("input_ids", "labels", "loss_mask"):
            del language[key]
        inputs = megatron_bridge.forward_inputs(language)
        for key in ("input_ids", "labels", "loss_mask", "modality_inputs"):
            self.assertIsNone(inputs[key])
        self.assertIsNotNone(inputs["packing_kwargs"])
        vision = {k: batch()[k] for k in ("pixel_values", "image_grid_thw")}
        inputs = megatron_bridge.forward_inputs(vision)
        self.assertIsNone(inputs["packing_kwargs"])
        self.assertIsNone(inputs["position_ids"])


class CoreTest(unittest.TestCase):
    def test_params(self):
        fields = megatron_core.packed_seq_params(batch())
        self.assertEqual(fields["qkv_format"], "thd")
        for side in ("q", "kv", "q_padded", "kv_padded"):
            self.assertEqual(fields["cu_seqlens_" + side].tolist(), [0, 8, 16, 20])
        self.assertEqual((fields["max_seqlen_q"], fields["max_seqlen_kv"]), (8, 8))
        self.assertNotIn("pad_between_seqs", fields)

    def test_real_lengths(self):
        fields = megatron_core.packed_seq_params(batch(), padded_only=False)
        self.assertEqual(fields["cu_seqlens_q"].tolist(), [0, 5, 13, 15])
        self.assertEqual(fields["cu_seqlens_kv_padded"].tolist(), [0, 8, 16, 20])
        self.assertIs(fields["pad_between_seqs"], True)
        fields = megatron_core.packed_seq_params(batch(tight=True), padded_only=False)
        self.assertIs(fields["pad_between_seqs"], False)

    def test_class_of_an_older_version(self):
        class Params:
            def __init__(self, qkv_format=None, cu_seqlens_q=None, max_seqlen_q=None):
                self.fields = (qkv_format, cu_seqlens_q.tolist(), max_seqlen_q)

        params = megatron_core.packed_seq_params(batch(), Params)
        # The only bounds that it has are those of the places.
        self.assertEqual(params.fields, ("thd", [0, 8, 16, 20], 8))
        params = megatron_core.packed_seq_params(batch(tight=True), Params)
        self.assertEqual(params.fields, ("thd", [0, 5, 13, 15], 8))

    def test_padding_mask(self):
        # [0,3,5] in [0,4,8] is FFFT FFTT.
        small = {
            "cu_seqlens": numpy.array([0, 3, 5]),
            "cu_seqlens_padded": numpy.array([0, 4, 8]),
        }
        mask = megatron_core.padding_mask(small)
        self.assertEqual(mask.tolist(), [[i in (3, 6, 7) for i in range(8)]])

    def test_get_batch_zeroes_padding(self):
        given = batch()
        tokens, labels, loss_mask, attention, positions, params, mask = megatron_core.get_batch(
            given
        )
        self.assertIsNone(attention)
        self.assertEqual(mask.shape, (1, TOTAL))
        self.assertEqual(int(mask.sum()), TOTAL - sum(LENGTHS))
        for got, key in ((tokens, "input_ids"), (labels, "labels"), (loss_mask, "loss_mask")):
            self.assertEqual(got.dtype, given[key].dtype)
            self.assertTrue((got[mask] == 0).all())
            self.assertTrue((got[~mask] == given[key][~mask]).all())
        self.assertTrue((positions[:, mask] == 0).all())
        self.assertEqual(params["qkv_format"], "thd")

    def test_get_batch_copies_nothing_without_padding(self):
        given = batch(tight=True)
        tokens, labels, _, _, positions, _, mask = megatron_core.get_batch(given)
        self.assertIs(tokens, given["input_ids"])
        self.assertIs(labels, given["labels"])
        self.assertIs(positions, given["position_ids"])
        self.assertFalse(mask.any())

    def test_get_batch_of_a_middle_stage(self):
        given = {k: v for k, v in batch().items() if k.startswith("cu_") or k == "max_seqlen"}
        tokens, labels, loss_mask, _, positions, params, mask = megatron_core.get_batch(given)
        self.assertEqual((tokens, labels, loss_mask, positions), (None,) * 4)
        self.assertEqual(mask.shape, (1, TOTAL))
        self.assertEqual(params["max_seqlen_q"], 8)

    def test_get_batch_of_a_context_slice(self):
        given = batch()
        given["input_ids"] = given["input_ids"][:, : TOTAL // 2]
        tokens, *_, mask = megatron_core.get_batch(given)
        self.assertIs(tokens, given["input_ids"])
        self.assertIsNone(mask)


class FakeGroup:
    def __init__(self, size, rank):
        self.numbers = size, rank

    def size(self):
        return self.numbers[0]

    def rank(self):
        return self.numbers[1]


def shared(ranks, rank):
    """The batch as one of the ranks has it that share its pack."""
    given = batch()
    places = given["cu_seqlens_padded"]
    index = []
    for begin, end in zip(places.tolist(), places[1:].tolist()):
        pieces = numpy.arange(begin, end).reshape(2 * ranks, -1)
        index += [pieces[rank], pieces[2 * ranks - 1 - rank]]
    for key in ("input_ids", "labels", "loss_mask", "position_ids"):
        given[key] = given[key][..., numpy.concatenate(index)]
    del given["pixel_values"], given["image_grid_thw"]
    given["pack_share_host"] = numpy.array([ranks, rank])
    return given


class ContextBatchesTest(unittest.TestCase):
    def test_a_pass_a_sample_of_a_shared_pack(self):
        group = FakeGroup(2, 1)
        asked = []
        given = shared(2, 1)
        passes = list(
            megatron_core.context_batches(given, group_of=lambda n: asked.append(n) or group)
        )
        self.assertEqual(asked, [2])
        self.assertEqual(len(passes), len(PADDED))
        whole = batch()
        begin = 0
        for length, (tokens, labels, loss_mask, attention, positions, params, mask) in zip(
            PADDED, passes
        ):
            quarter = length // 4
            part = numpy.r_[begin + quarter : begin + 3 * quarter]
            for found, key in ((tokens, "input_ids"), (labels, "labels"),
                               (loss_mask, "loss_mask"), (positions, "position_ids")):  # fmt: skip
                self.assertEqual(found.tolist(), whole[key][..., part].tolist())
            self.assertIsNone(attention)
            self.assertIsNone(mask)
            self.assertEqual(params["qkv_format"], "sbhd")
            self.assertEqual((params["local_cp_size"], params["cp_group"]), (2, group))
            self.assertEqual((params["max_seqlen_q"], params["max_seqlen_kv"]), (length, length))
            for side in ("q", "kv", "q_padded", "kv_padded"):
                self.assertEqual(params["cu_seqlens_" + side].tolist(), [0, length])
                self.assertEqual(params["cu_seqlens_" + side].dtype, numpy.int32)
            begin += length

    def test_a_pack_of_one_rank_is_one_pass(self):
        given = shared(1, 0)
        ((tokens, *_, params, mask),) = megatron_core.context_batches(given, group_of=None)
        self.assertEqual(tokens.shape, (1, TOTAL))
        self.assertEqual(mask.shape, (1, TOTAL))
        self.assertEqual((params["qkv_format"], params["local_cp_size"]), ("thd", 1))
        self.assertNotIn("cp_group", params)
        self.assertEqual(params["cu_seqlens_q"].tolist(), [0, 8, 16, 20])

    def test_what_it_refuses(self):
        def passes(given, group=None, cls=None):
            return list(megatron_core.context_batches(given, cls, group_of=lambda n: group))

        with self.assertRaisesRegex(FailedPrecondition, "one context-parallel size"):
            passes({k: v for k, v in batch().items() if "image" not in k and "pixel" not in k})
        with self.assertRaisesRegex(FailedPrecondition, "4 ranks in which this one is number 1"):
            passes(shared(2, 1), FakeGroup(4, 1))
        with self.assertRaisesRegex(FailedPrecondition, "wanted 2 ranks and number 1"):
            passes(shared(2, 1), FakeGroup(2, 0))

        with_images = dict(shared(2, 1), embedding_receive_host=numpy.array([0, 0]))
        with self.assertRaisesRegex(FailedPrecondition, "train without them: .*ContextImages"):
            passes(with_images, FakeGroup(2, 1))

        class Params:
            def __init__(self, qkv_format=None):
                pass

        with self.assertRaisesRegex(FailedPrecondition, "without local_cp_size and cp_group"):
            passes(shared(2, 1), FakeGroup(2, 1), Params)

    def test_others_refuse_shared_packs(self):
        for given in (shared(2, 1), shared(1, 0)):
            for consumer in (megatron_core.packed_seq_params, megatron_core.get_batch,
                             megatron_lm.batch_list, megatron_bridge.forward_inputs,
                             huggingface.packed):  # fmt: skip
                with self.assertRaisesRegex(FailedPrecondition, "packing.dynamic_cp"):
                    consumer(given)


class HuggingFaceTest(unittest.TestCase):
    def test_packed(self):
        given = batch()
        inputs = huggingface.packed(given)
        self.assertIs(inputs["input_ids"], given["input_ids"])
        self.assertEqual([key for key, value in inputs.items() if value is None], [])
        self.assertIs(inputs["use_cache"], False)
        positions = inputs["position_ids"]
        self.assertEqual(positions.shape, (4, 1, TOTAL))
        self.assertEqual(positions[0, 0].tolist(), [i for n in PADDED for i in range(n)])
        self.assertTrue((positions[1:] == given["position_ids"]).all())
        # Moved right: the label of a token is the token itself.
        labels, ids = inputs["labels"][0], given["input_ids"][0]
        for i in range(TOTAL):
            self.assertIn(labels[i], (-100, ids[i]))
        self.assertEqual(int((labels != -100).sum()), sum(n - 1 for n in LENGTHS))
        self.assertIs(inputs["pixel_values"], given["pixel_values"])

    def test_bounds_of_the_samples(self):
        inputs = huggingface.packed(batch())
        self.assertEqual(inputs["cu_seq_lens_q"].tolist(), [0, 8, 16, 20])
        self.assertEqual(inputs["cu_seq_lens_k"].tolist(), [0, 8, 16, 20])
        self.assertEqual((inputs["max_length_q"], inputs["max_length_k"]), (8, 8))

    def test_the_sample_of_each_token(self):
        numbers = huggingface.packed(batch())["seq_idx"]
        self.assertEqual(numbers.dtype, numpy.int32)
        self.assertEqual(numbers.tolist(), [[0] * 8 + [1] * 8 + [2] * 4])

    def test_slices_of_context_ranks_are_refused(self):
        cut = batch()
        for key in ("input_ids", "labels", "position_ids"):
            cut[key] = cut[key][..., : TOTAL // 2]
        for call in (
            huggingface.packed,
            huggingface.padded,
            lambda b: huggingface.unpacked(b, [1, 0, 2]),
        ):
            with self.assertRaisesRegex(
                FailedPrecondition, "10 of 20 tokens, cut for a context rank"
            ):
                call(cut)

    def test_one_axis_of_positions(self):
        given = batch()
        given["position_ids"] = given["position_ids"][0]
        positions = huggingface.packed(given)["position_ids"]
        self.assertEqual(positions.shape, (4, 1, TOTAL))
        for axis in (1, 2, 3):
            self.assertTrue((positions[axis] == given["position_ids"]).all())
        pictures = ballast.Batch()
        pictures.update(given)
        pictures.totals = types.SimpleNamespace(images=3, videos=0, clips=0)
        for call in (huggingface.packed, huggingface.padded):
            with self.assertRaisesRegex(FailedPrecondition, "one axis, with 3 images"):
                call(pictures)

    def test_unpacked(self):
        given = batch()
        samples = huggingface.unpacked(given, [len(images) for images in IMAGES])
        self.assertEqual(len(samples), 3)
        first = 0
        for number, (sample, length) in enumerate(zip(samples, LENGTHS)):
            ids = [token(number, i) for i in range(length)]
            self.assertEqual(sample["input_ids"].tolist(), [ids])
            self.assertEqual(sample["labels"].tolist(), [[-100, *ids[1:]]])
            self.assertEqual(sample["attention_mask"].tolist(), [[1] * length])
            self.assertEqual(sample["position_ids"].shape, (3, 1, length))
            self.assertEqual(sample["position_ids"][0, 0].tolist(), list(range(length)))
            if not IMAGES[number]:
                self.assertNotIn("pixel_values", sample)
                continue
            grid = sample["image_grid_thw"].tolist()
            self.assertEqual([tuple(row) for row in grid], IMAGES[number])
            patches = sum(t * h * w for t, h, w in IMAGES[number])
            self.assertEqual(
                sample["pixel_values"][:, 0].tolist(), list(range(first, first + patches))
            )
            first += patches

    def test_padded(self):
        given = batch()
        inputs = huggingface.padded(given)
        self.assertEqual(
            set(inputs),
            {"input_ids", "labels", "attention_mask", "position_ids", "use_cache",
             "pixel_values", "image_grid_thw"},
        )  # fmt: skip
        self.assertEqual(inputs["position_ids"].shape, (3, 3, 8))
        for i, length in enumerate(LENGTHS):
            self.assertEqual(inputs["attention_mask"][i].tolist(), [j < length for j in range(8)])
            # labels[j] is for token j itself; a sample's first token has none.
            supervised = [token(i, j) for j in range(1, length)]
            self.assertEqual(
                inputs["labels"][i].tolist(), [-100, *supervised] + [-100] * (8 - length)
            )

    def test_dummy_image_is_a_sample_after_the_others(self):
        given = ballast.Batch()
        given.update(batch())
        given.dummy_image, given.image_token = True, 77
        inputs = huggingface.packed(given)
        self.assertEqual(len(inputs["image_grid_thw"]), 3)
        self.assertEqual(len(inputs["pixel_values"]), 8 + 4 + 8)
        # As many tokens as keep the row a multiple of 4.
        self.assertEqual(inputs["input_ids"][0, TOTAL:].tolist(), [77, 0, 0, 0])
        self.assertEqual(inputs["labels"][0, TOTAL:].tolist(), [-100] * 4)
        positions = inputs["position_ids"][:, 0, TOTAL:].tolist()
        self.assertEqual(positions, [[0, 1, 2, 3]] + [[0] * 4] * 3)
        self.assertEqual(inputs["cu_seq_lens_q"].tolist(), [0, 8, 16, 20, 24])
        self.assertEqual(inputs["seq_idx"][0, TOTAL:].tolist(), [3] * 4)
        rows = huggingface.padded(given)
        self.assertEqual(rows["input_ids"].shape, (3, 16))
        self.assertEqual(rows["input_ids"][2, 8:].tolist(), [77] + [0] * 7)
        self.assertFalse(rows["attention_mask"][:, 8:].any())

    def test_dummy_clip_is_in_padding_after_the_last_row(self):
        without = ("pixel_values", "image_grid_thw")
        given = ballast.Batch({key: each for key, each in batch().items() if key not in without})
        given.update(input_features=numpy.zeros((3, 128)), audio_cu_rows=numpy.array([0, 3]),
                     audio_feature_lengths=numpy.array([3]))  # fmt: skip
        given.dummy_clip = True
        with self.assertRaisesRegex(
            FailedPrecondition, "dummy clip in a batch without audio_token"
        ):
            huggingface_audio.gemma4(given)
        given.audio_token = 78
        for take in (huggingface_audio.gemma4, huggingface_audio.omni_padded):
            inputs = take(given)
            self.assertEqual(inputs["input_ids"].shape, (3, 16))
            self.assertEqual(inputs["input_ids"][2, 8:].tolist(), [78] + [0] * 7)
            self.assertFalse(inputs["attention_mask"][:, 8:].any())
            # Zeros have no gradient in Gemma 3n's norms.
            self.assertTrue((inputs["input_features"] == 1).all())
        with self.assertRaisesRegex(FailedPrecondition, "Say features.batch, dummy=True"):
            huggingface_audio.features(given)


class EmbeddingsTest(unittest.TestCase):
    def test_a_process_has_one_rank_of_both_modules(self):
        def ranks(*numbers):
            parts = [types.SimpleNamespace(info=types.SimpleNamespace(dp_rank=n)) for n in numbers]
            return embeddings._rank_of(types.SimpleNamespace(_parts=parts))

        self.assertEqual([ranks(), ranks(3), ranks(2, 2)], [-1, 3, 2])
        with self.assertRaisesRegex(InvalidArgument, r"ranks \[0, 1\] of vision and language"):
            ranks(0, 1)


if __name__ == "__main__":
    unittest.main()
