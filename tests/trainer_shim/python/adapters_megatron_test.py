"""The adapters for Megatron's consumers, on batches whose values are formulas."""

import types
import unittest

import numpy

from ballast.adapters import (
    bridge_qwen3_vl,
    bridge_vlm,
    huggingface,
    megatron_bridge,
    megatron_core,
    megatron_llava,
    megatron_lm,
    padded,
)
from ballast.adapters._peers import image_tokens, rows_of
from ballast.batch import Batch
from ballast.errors import FailedPrecondition, Internal, InvalidArgument
from tests.trainer_shim.python.adapters_test import IMAGES, LENGTHS, PAD, PADDED, TOTAL
from tests.trainer_shim.python.adapters_test import batch as numbers

IMAGE, MERGE = 77, 2


def job(vision=None, language=None, colocated=True):
    """The job, in the form of Loader.job."""
    modules = [
        dict({"module": name, "dp": 1, "tp": 1, "pp": 1, "cp": 1, "align": 4}, **sizes)
        for name, sizes in (("vision", vision or {}), ("language", language or {}))
    ]
    model = {"token_ids": {"image": IMAGE, "pad": PAD}, "merge": MERGE}
    return {"modules": modules, "colocated": colocated, "model": model}


class FakeLoader:
    def __init__(self, schedule=None, **layout):
        self.job = job(**layout)
        self._schedule = schedule
        self.asked = 0

    def schedule(self):
        self.asked += 1
        return self._schedule


def batch_of(values, dummy=False, positions=()):
    given = Batch()
    given.update(values)
    given.dummy_image = dummy
    given.step, given.micro_batch = 3, 1
    given._samples = [types.SimpleNamespace(position=p) for p in positions]
    return given


def whole(dummy=False):
    return batch_of(numbers(), dummy)


def in_rows(dummy=False, width=8):
    """The batch as the loader makes it with packing.mode padded: rows of `width`."""
    values = numbers()
    rows = padded.rows(values, pad=PAD, length=width)
    images = {key: values[key] for key in ("pixel_values", "image_grid_thw")}
    return batch_of(dict(rows, max_seqlen=width, **images), dummy)


def text():
    """A language rank's batch, without pixels."""
    values = numbers()
    del values["pixel_values"], values["image_grid_thw"]
    return batch_of(values)


class MimoTest(unittest.TestCase):
    def test_layouts_that_are_refused(self):
        for layout, said in (
            ({"vision": {"pp": 2}}, "vision.pp: found 2"),
            ({"vision": {"cp": 2}}, "vision.cp: found 2"),
            ({"language": {"cp": 2}}, "packing.align: 2"),
            ({"vision": {"dp": 4}, "language": {"dp": 2}}, "vision.dp: found 4"),
            ({"vision": {"dp": 2}, "language": {"dp": 3}, "colocated": False}, "divides"),
            ({"vision": {"dp": 1}, "language": {"dp": 2}}, "colocated"),
        ):
            with self.assertRaisesRegex(FailedPrecondition, said):
                megatron_bridge.Mimo(FakeLoader(**layout))
        megatron_bridge.Mimo(FakeLoader(vision={"dp": 2, "tp": 2}, language={"dp": 2, "pp": 2}))

    def test_an_option_is_checked_at_once(self):
        with self.assertRaisesRegex(InvalidArgument, "dummy_image: found 'keep'"):
            megatron_bridge.Mimo(FakeLoader(), dummy_image="keep")

    def test_no_image_is_none(self):
        values = numbers()
        values["pixel_values"] = values["pixel_values"][:0]
        values["image_grid_thw"] = values["image_grid_thw"][:0]
        inputs = megatron_bridge.Mimo(FakeLoader())(batch_of(values))
        self.assertIsNone(inputs["modality_inputs"])

    def test_dummy_image(self):
        # The last image, of 8 patches, belongs to no sample.
        fields = megatron_bridge.forward_inputs(whole(dummy=True))["modality_inputs"]
        self.assertEqual(fields["images"]["qwen_visual"]["dummy_image"], (8, 20))
        dropped = megatron_bridge.forward_inputs(whole(dummy=True), dummy_image="drop")
        fields = dropped["modality_inputs"]["images"]["qwen_visual"]
        self.assertEqual(set(fields), {"hidden_states", "grid_thw"})
        self.assertEqual(fields["hidden_states"][:, 0].tolist(), list(range(12)))
        self.assertEqual(fields["grid_thw"].tolist(), [[1, 2, 4], [1, 2, 2]])

    def test_a_batch_cut_for_a_context_rank_is_refused(self):
        given = whole()
        given["labels"] = given["labels"][:, : TOTAL // 2]
        with self.assertRaisesRegex(FailedPrecondition, "labels: found 10 of 20 tokens"):
            megatron_bridge.forward_inputs(given)

    def test_rows_of_the_loader_have_no_lengths(self):
        given = in_rows()
        inputs = megatron_bridge.Mimo(FakeLoader())(given)
        self.assertIsNone(inputs["packing_kwargs"])
        self.assertIsNone(inputs["attention_mask"])  # refused under context parallelism
        for key in ("input_ids", "labels", "loss_mask", "position_ids"):
            self.assertIs(inputs[key], given[key])
        given["input_ids"] = given["input_ids"][:, :4]
        with self.assertRaisesRegex(FailedPrecondition, "input_ids: found 4 of 8 tokens"):
            megatron_bridge.forward_inputs(given)

    def test_rows_of_language_peers(self):
        # Vision rank 0 of 2 feeds language ranks 0 and 1.
        samples = [
            {"position": p, "patches": n, "owner": {"vision": 0, "language": owner}}
            for p, n, owner in ((8, 8, 0), (5, 0, 0), (9, 12, 1))
        ]
        loader = FakeLoader(
            schedule={"micro_batches": [{"samples": samples}]},
            vision={"dp": 2}, language={"dp": 4}, colocated=False,
        )  # fmt: skip
        given = batch_of({k: numbers()[k] for k in ("pixel_values", "image_grid_thw")},
                         positions=(8, 5, 9))  # fmt: skip
        adapter = megatron_bridge.Mimo(loader)
        ids = adapter(given)["input_ids"]
        self.assertEqual(ids.dtype, numpy.int64)
        self.assertEqual(ids.tolist(), [[IMAGE, IMAGE, 0], [IMAGE, IMAGE, IMAGE]])
        adapter(given)
        self.assertEqual(loader.asked, 1)  # once a step
        # A language rank's ids are its own.
        self.assertEqual(adapter(text())["input_ids"].shape, (1, TOTAL))

    def test_peers_out_of_order(self):
        self.assertEqual(image_tokens([(4, 2), (8, 3)], 2, 4), [1, 2])
        self.assertEqual(image_tokens([], 2, 4), [0, 0])
        for owners in ((1, 0), (1, 2)):
            with self.assertRaises(Internal):
                image_tokens([(4, owner) for owner in owners], 2, 4)
        self.assertEqual(rows_of([0, 0], 0).tolist(), [[1], [1]])


class PaddedTest(unittest.TestCase):
    def test_rows(self):
        given = whole()
        rows = padded.rows(given, pad=PAD)
        width = max(LENGTHS)
        for key, fill in (("input_ids", PAD), ("labels", -100), ("loss_mask", 0)):
            self.assertEqual(rows[key].shape, (3, width))
            self.assertEqual(rows[key].dtype, given[key].dtype)
            for i, length in enumerate(LENGTHS):
                begin = sum(PADDED[:i])
                packed = given[key][0, begin : begin + length].tolist()
                self.assertEqual(rows[key][i].tolist(), packed + [fill] * (width - length))
        self.assertEqual(rows["position_ids"].shape, (3, 3, width))
        self.assertEqual(rows["position_ids"][1, 0].tolist(), [1000, 1001, 1002, 1003, 1004, 0, 0, 0])
        self.assertEqual(rows["attention_mask"].sum(1).tolist(), LENGTHS)

    def test_width(self):
        self.assertEqual(padded.rows(whole(), pad=PAD, multiple=6)["labels"].shape, (3, 12))
        self.assertEqual(padded.rows(whole(), pad=PAD, length=9)["labels"].shape, (3, 9))
        with self.assertRaisesRegex(InvalidArgument, "length: found 7; .* 8 tokens"):
            padded.rows(whole(), pad=PAD, length=7)

    def test_rows_of_the_loader_are_passed_on(self):
        given = in_rows(width=12)
        for options in ({}, {"length": 12}, {"multiple": 4}):
            rows = padded.rows(given, pad=PAD, **options)
            self.assertEqual(
                set(rows), {"attention_mask", "input_ids", "labels", "loss_mask", "position_ids"}
            )
            for key, value in rows.items():
                self.assertIs(value, given[key])
        for options in ({"length": 16}, {"multiple": 5}):
            with self.assertRaisesRegex(InvalidArgument, "rows of 12.*packing.row_length"):
                padded.rows(given, pad=PAD, **options)

    def test_what_a_stage_lacks(self):
        given = text()
        del given["labels"], given["loss_mask"]
        self.assertEqual(
            set(padded.rows(given, pad=PAD)), {"attention_mask", "input_ids", "position_ids"}
        )


def picture(h, w):
    """Ids and 3-axis positions of one image between two tokens, merged size h x w."""
    ids = [5, *[IMAGE] * (h * w), 6]
    places = [(0, 0, 0)] + [(1, 1 + y, 1 + x) for y in range(h) for x in range(w)]
    places.append((1 + max(h, w),) * 3)
    return ids, places


class VlmTest(unittest.TestCase):
    def test_keys(self):
        given = whole()
        inputs = bridge_vlm.Vlm(FakeLoader(), "qwen2_5_vl")(given)
        # The step sets every other key to None.
        self.assertEqual(
            set(inputs),
            {"input_ids", "position_ids", "labels", "loss_mask", "attention_mask",
             "visual_inputs", "cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded",
             "cu_seqlens_kv_padded", "max_seqlen_q", "max_seqlen_kv"},
        )  # fmt: skip
        self.assertEqual(inputs["max_seqlen_q"].tolist(), [8])
        self.assertEqual(inputs["cu_seqlens_q_padded"].tolist(), [0, 8, 16, 20])
        images = inputs["visual_inputs"].normalized_for_model()
        self.assertEqual(set(images), {"pixel_values", "image_grid_thw"})
        self.assertIs(images["pixel_values"], given["pixel_values"])

    def test_no_image_and_only_a_dummy_image(self):
        values = numbers()
        for images, dummy in ((0, False), (1, True)):
            values["image_grid_thw"] = numpy.array([[1, 2, 2]][:images]).reshape(-1, 3)
            values["pixel_values"] = numpy.zeros((4 * images, 6), numpy.float32)
            inputs = bridge_vlm.Vlm(FakeLoader(), "qwen3_vl")(batch_of(values, dummy))
            self.assertIsNone(inputs["visual_inputs"])

    def test_sizes_on_a_later_stage(self):
        parts = [picture(2, 3), picture(4, 1)]
        ids = sum((part[0] for part in parts), [])
        places = sum((part[1] for part in parts), [])
        values = {
            "input_ids": numpy.array([ids]),
            "position_ids": numpy.array(places).T[:, None],
            "cu_seqlens": numpy.array([0, len(ids)], numpy.int32),
            "cu_seqlens_padded": numpy.array([0, len(ids)], numpy.int32),
            "max_seqlen": len(ids),
        }
        inputs = bridge_vlm.Vlm(FakeLoader(), "qwen2_5_vl")(batch_of(values))
        self.assertIsNone(inputs["visual_inputs"].pixel_values)
        self.assertEqual(
            inputs["visual_inputs"].image_grid_thw.tolist(), [[1, 4, 6], [1, 8, 2]]
        )
        # Qwen3-VL takes the positions themselves.
        inputs = bridge_vlm.Vlm(FakeLoader(), "qwen3_vl")(batch_of(values))
        self.assertIsNone(inputs["visual_inputs"])

    def test_rows_of_the_loader_have_no_lengths(self):
        given = in_rows()
        inputs = bridge_vlm.Vlm(FakeLoader(), "qwen2_5_vl")(given)
        self.assertEqual(
            set(inputs),
            {"input_ids", "position_ids", "labels", "loss_mask", "attention_mask",
             "visual_inputs"},
        )  # fmt: skip
        self.assertIs(inputs["position_ids"], given["position_ids"])

    def test_sizes_of_every_row_on_a_later_stage(self):
        # An image that ends a row, and one that begins the next.
        ids = numpy.full((2, 5), 5)
        ids[0, 3:] = IMAGE
        ids[1, :1] = IMAGE
        positions = numpy.tile(numpy.arange(5), (3, 2, 1))
        positions[:, 0, 3:] = [[3, 3], [3, 4], [3, 3]]
        values = {"input_ids": ids, "position_ids": positions, "max_seqlen": 5,
                  "attention_mask": numpy.ones((2, 5), bool)}  # fmt: skip
        inputs = bridge_vlm.Vlm(FakeLoader(), "qwen2_5_vl")(batch_of(values))
        self.assertEqual(
            inputs["visual_inputs"].image_grid_thw.tolist(), [[1, 4, 2], [1, 2, 2]]
        )

    def test_every_stage_needs_ids(self):
        given = text()
        del given["input_ids"]
        with self.assertRaisesRegex(FailedPrecondition, "needs_input_ids=True"):
            bridge_vlm.Vlm(FakeLoader(), "qwen2_5_vl")(given)

    def test_layouts_that_are_refused(self):
        for layout, said in (
            ({"colocated": False}, "colocated: true"),
            ({"language": {"dp": 2}}, "language.dp 2"),
            ({"language": {"cp": 2}}, "language.cp: found 2"),
        ):
            with self.assertRaisesRegex(FailedPrecondition, said):
                bridge_vlm.Vlm(FakeLoader(**layout), "qwen2_5_vl")
        bridge_vlm.Vlm(FakeLoader(language={"cp": 2}), "qwen3_vl")
        with self.assertRaisesRegex(InvalidArgument, "model: found 'llava'"):
            bridge_vlm.Vlm(FakeLoader(), "llava")


class Qwen3VlStepTest(unittest.TestCase):
    def test_rows(self):
        inputs = bridge_qwen3_vl.Qwen3VlStep(FakeLoader(), micro_batch_size=3)(whole())
        self.assertEqual(
            set(inputs),
            {"input_ids", "position_ids", "labels", "loss_mask", "attention_mask",
             "visual_inputs"},
        )  # fmt: skip
        self.assertEqual(inputs["input_ids"].shape, (3, 8))
        self.assertIsNone(inputs["position_ids"])
        self.assertEqual(len(inputs["visual_inputs"].image_grid_thw), sum(map(len, IMAGES)))

    def test_rows_of_the_loader_are_passed_on(self):
        given = in_rows(width=12)
        inputs = bridge_qwen3_vl.Qwen3VlStep(FakeLoader(), micro_batch_size=3, seq_length=12)(given)
        for key in ("input_ids", "labels", "loss_mask", "attention_mask"):
            self.assertIs(inputs[key], given[key])
        self.assertIsNone(inputs["position_ids"])
        with self.assertRaisesRegex(FailedPrecondition, "rows of 12 tokens.*packing.row_length"):
            bridge_qwen3_vl.Qwen3VlStep(FakeLoader(), seq_length=8)(given)

    def test_refuses_what_the_step_would_cut_or_mix_up(self):
        with self.assertRaisesRegex(FailedPrecondition, "equal_count"):
            bridge_qwen3_vl.Qwen3VlStep(FakeLoader(), micro_batch_size=2)(whole())
        with self.assertRaisesRegex(FailedPrecondition, "8 tokens.*seq_length 7"):
            bridge_qwen3_vl.Qwen3VlStep(FakeLoader(), seq_length=7)(whole())
        with self.assertRaisesRegex(FailedPrecondition, "cp: found 2"):
            bridge_qwen3_vl.Qwen3VlStep(FakeLoader(language={"cp": 2}))


class MegatronLmTest(unittest.TestCase):
    def test_list(self):
        given = text()
        listed = megatron_lm.batch_list(given)
        self.assertEqual(len(listed), 10)
        for i in (0, 3, 5):
            self.assertIsNone(listed[i])
        self.assertEqual(listed[1].tolist(), [[0, 5, 13, 15]])
        self.assertEqual(listed[2].tolist(), [[0, 8, 16, 20]])
        self.assertEqual(listed[7].item(), 8)
        for i, key in ((4, "labels"), (6, "loss_mask"), (8, "position_ids"), (9, "input_ids")):
            self.assertIs(listed[i], given[key])

    def test_list_of_rows(self):
        given = in_rows()
        del given["pixel_values"], given["image_grid_thw"]
        listed = megatron_lm.batch_list(given)
        for i in (0, 1, 2, 3, 5, 7):
            self.assertIsNone(listed[i])
        for i, key in ((4, "labels"), (6, "loss_mask"), (8, "position_ids"), (9, "input_ids")):
            self.assertIs(listed[i], given[key])

    def test_rows_have_no_lengths_to_pack_by(self):
        for consumer in (megatron_core.get_batch, megatron_core.packed_seq_params,
                         huggingface.packed, huggingface.unpacked):  # fmt: skip
            with self.assertRaisesRegex(FailedPrecondition, "padded batch of 3 rows"):
                consumer(in_rows())

    def test_images_are_refused(self):
        with self.assertRaisesRegex(InvalidArgument, "found 3 images"):
            megatron_lm.batch_list(whole())

    def test_text_of_images_without_them_is_refused(self):
        given = text()
        given.totals = types.SimpleNamespace(images=3, videos=0)
        with self.assertRaisesRegex(FailedPrecondition, "3 images and 0 videos without their pixels"):
            megatron_lm.batch_list(given)

    def test_tensors_only(self):
        inputs = megatron_bridge.forward_inputs(whole(dummy=True), dummy_image="drop")
        sent = megatron_lm.tensors_only(inputs)
        self.assertNotIn("attention_mask", sent)
        self.assertEqual(sent["packing_kwargs"]["max_seqlen_q"].tolist(), [8])
        self.assertIs(sent["labels"], inputs["labels"])
        with self.assertRaisesRegex(InvalidArgument, "drop"):
            megatron_lm.tensors_only(megatron_bridge.forward_inputs(whole(dummy=True)))

    def test_llava_refuses_patches(self):
        given = whole()
        given["position_ids"] = given["position_ids"][0]
        with self.assertRaisesRegex(InvalidArgument, "found shape .*takes tiles"):
            megatron_llava.forward_inputs(given, image_token=5, tokens_per_tile=4)


if __name__ == "__main__":
    unittest.main()
