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
    megatron_split,
    padded,
)
from ballast.adapters._peers import image_tokens, require_tokens_by_patches, rows_of
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
        self.asked, self.adapter = 0, None

    def schedule(self):
        self.asked += 1
        return dict(self._schedule, step=3)

    def keep_schedules(self):
        pass

    def mimo(self, given):
        """The inputs of a batch of this loader."""
        given._schedule = self.schedule
        self.adapter = self.adapter or megatron_bridge.Mimo(self)
        return self.adapter(given)


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
            ({"vision": {"dp": 4}, "language": {"dp": 2}}, "vision.dp 4 .* colocated"),
            ({"vision": {"dp": 2}, "language": {"dp": 3}, "colocated": False}, "divides"),
            ({"vision": {"dp": 1}, "language": {"dp": 2}}, "colocated"),
        ):
            with self.assertRaisesRegex(FailedPrecondition, said):
                megatron_bridge.Mimo(FakeLoader(**layout))
        megatron_bridge.Mimo(FakeLoader(vision={"dp": 2, "tp": 2}, language={"dp": 2, "pp": 2}))

    def test_split_placement_of_modules_apart_needs_its_communicator(self):
        """Megatron's own would put the rows into other texts, where numbers are equal."""
        paired = FakeLoader(vision={"dp": 2}, language={"dp": 4}, colocated=False)
        apart = FakeLoader(vision={"dp": 2}, language={"dp": 3}, colocated=False)
        apart.job["placement"] = "split"
        together = FakeLoader()
        together.job["placement"] = "split"
        for loader in (paired, together):
            with self.assertRaisesRegex(FailedPrecondition, "wanted false with `split`"):
                megatron_split.Batches(loader)
        with self.assertRaisesRegex(FailedPrecondition, "wanted megatron_split.Batches"):
            megatron_bridge.Mimo(apart)
        batches = megatron_split.Batches(apart)
        with self.assertRaisesRegex(FailedPrecondition, "in a job without"):
            megatron_bridge.Mimo(paired, batches=batches)
        to_mimo = megatron_bridge.Mimo(apart, batches=batches)

        received = text()
        received.update(embedding_receive_host=[3, 0], embedding_order=[0, 1, 2])
        other = text()
        batches._loader = iter([received, other])
        self.assertIs(batches.peek(), received)
        with self.assertRaisesRegex(FailedPrecondition, "not taken of them last"):
            to_mimo(received)
        self.assertIs(next(batches), received)
        self.assertIsNone(to_mimo(received)["modality_inputs"])
        with self.assertRaisesRegex(FailedPrecondition, "not taken of them last"):
            to_mimo(other)
        # From the batch alone nothing knows of the communicator.
        for key in ("embedding_send_host", "embedding_receive_host"):
            given = whole()
            given[key] = [3, 0]
            del given["input_ids"]
            with self.assertRaisesRegex(FailedPrecondition, "megatron_split.Batches"):
                megatron_bridge.forward_inputs(given)

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
        ids = loader.mimo(given)["input_ids"]
        self.assertEqual(ids.dtype, numpy.int64)
        self.assertEqual(ids.tolist(), [[IMAGE, IMAGE, 0], [IMAGE, IMAGE, IMAGE]])
        loader.mimo(given)
        self.assertEqual(loader.asked, 1)  # once a step
        # A language rank's ids are its own.
        self.assertEqual(loader.mimo(text())["input_ids"].shape, (1, TOTAL))

    def test_tokens_of_audio_to_language_ranks(self):
        def loader(dp, language, samples):
            made = FakeLoader(
                schedule={"micro_batches": [{"samples": [
                    {"position": p, "patches": 0, "owner": {"audio": a, "language": owner},
                     **({"clips": 1, "frames": 9, "audio_tokens": n} if n else {})}
                    for p, n, a, owner in samples
                ]}]}, vision={"dp": language}, language={"dp": language}, colocated=False,
            )  # fmt: skip
            made.job["modules"].append({"module": "audio", "dp": dp})
            made.job["model"]["token_ids"]["audio"] = 7
            return made

        given = batch_of({"input_features": numpy.zeros((9, 4), numpy.float32),
                          "audio_feature_lengths": numpy.array([5, 4]),
                          "audio_cu_rows": numpy.array([0, 5, 9])}, positions=(8, 5, 9))  # fmt: skip
        # Rank 0 of 2 feeds language ranks 0 and 1.
        peers = loader(2, 4, [(8, 2, 0, 0), (5, 0, 0, 0), (9, 3, 0, 1)])
        ids = peers.mimo(given)["input_ids"]
        self.assertEqual(ids.tolist(), [[7, 7, 0], [7, 7, 7]])
        self.assertEqual(peers.mimo(text())["input_ids"].shape, (1, TOTAL))
        # Ranks 0 and 1 of 2 feed language rank 0.
        equal = [(8, 2, 0, 0), (5, 1, 1, 0), (9, 1, 1, 0)]
        self.assertIsNone(loader(2, 1, equal).mimo(given)["input_ids"])
        with self.assertRaisesRegex(
            FailedPrecondition, r"found \[2, 4\] audio tokens on audio ranks 0 to 1.* audio.dp that"
        ):
            loader(2, 1, [*equal, (3, 2, 1, 0)]).mimo(given)
        split = loader(2, 3, [])
        split.job["placement"] = "split"
        megatron_bridge.Mimo(split, batches=megatron_split.Batches(split))
        split.job["colocated"] = True
        with self.assertRaisesRegex(FailedPrecondition, "wanted topology.colocated: false"):
            megatron_bridge.Mimo(split)

    def test_the_job_s_encoder_of_each_of_the_trainer_s(self):
        def encoders(topology, *of_job, **given):
            job = {"modules": [{"module": module} for module in (*of_job, "language")]}
            return megatron_split._encoders(topology, job, given or None)

        both = {"images": ["language"], "audios": ["language"], "language": []}
        named = {"images": "vision", "audios": "audio"}
        self.assertEqual(encoders(both, "vision", "audio", **named), named)
        self.assertEqual(
            encoders({"seen": ["language"], "language": []}, "vision"), {"seen": "vision"}
        )
        self.assertEqual(
            encoders({"audio": ["llm"], "llm": []}, "audio", audio="audio"), {"audio": "audio"}
        )
        for topology, of_job, given, said in (
            (both, ("vision", "audio"), {}, "the job's are vision, audio: say which is which"),
            (both, ("vision", "audio"), {**named, "x": "vision"}, "say which is which"),
            (both, ("vision",), named, "the job's are vision: say"),
            ({"images": ["audios"], "audios": ["llm"], "llm": []}, ("vision", "audio"), named,
             "that feed the language model alone"),
        ):  # fmt: skip
            with self.assertRaisesRegex(FailedPrecondition, said):
                encoders(topology, *of_job, **given)

    def test_a_split_batch_needs_both_modules(self):
        vision = {key: numbers()[key] for key in ("pixel_values", "image_grid_thw")}
        for given, said in ((text(), "with text alone"), (batch_of(vision), "with images alone")):
            given["embedding_send_host"] = numpy.zeros(1)
            with self.assertRaisesRegex(FailedPrecondition, said):
                megatron_bridge.forward_inputs(given)
        given = whole()
        given.update(embedding_send_host=numpy.zeros(1), embedding_order=numpy.zeros(5))
        fields = self.fields(given)
        self.assertEqual(fields["split"][1:], ("hidden_states", "grid_thw"))
        self.assertIs(fields["split"][0].batch, given)

    def test_vision_ranks_of_one_language_rank(self):
        def loader(micro_batches):
            return FakeLoader(
                schedule={"micro_batches": [{"samples": [
                    {"position": p, "patches": n, "owner": {"vision": p, "language": p // 2}}
                    for p, n in enumerate(patches)
                ]} for patches in micro_batches]},
                vision={"dp": 4}, language={"dp": 2}, colocated=False,
            )  # fmt: skip

        # Other language ranks may get other numbers.
        for rank in (numbers(), {k: numbers()[k] for k in ("pixel_values", "image_grid_thw")}):
            inputs = loader([[8, 8, 4, 4], [0, 0, 4, 4]]).mimo(batch_of(rank))
            self.assertIs(inputs["input_ids"], rank.get("input_ids"))
            with self.assertRaisesRegex(
                FailedPrecondition,
                r"step 3, micro-batch 1: found \[4, 8\] patches on vision ranks 2 to 3.* rank 1;",
            ):
                loader([[8, 8, 4, 4], [8, 8, 4, 8]]).mimo(batch_of(rank))
        uneven = loader([])
        uneven.job["model"]["image_family"] = {"name": "mine", "rule": "pinpoints"}
        with self.assertRaisesRegex(FailedPrecondition, "mine.*vision.dp above language.dp"):
            megatron_bridge.Mimo(uneven)

    def test_forms_of_pixels(self):
        def given(pixels, dummy=True, **more):
            values = {k: v for k, v in numbers().items() if k != "pixel_values"}
            values.update(
                more, pixel_values=pixels,
                image_grid_thw=numpy.array([[1, 2, 2], [1, 2, 4], [1, 1, 1]]),
                imgs_sizes=numpy.array([[8, 8], [8, 16], [4, 4]]),
                crops_per_image=numpy.array([1, 1, 1]),
            )  # fmt: skip
            return batch_of(values, dummy)

        tiles = given(numpy.arange(3.0).reshape(3, 1, 1, 1).repeat(3, 1))
        raster = given(numpy.arange(13.0)[:, None])
        shapes = numpy.array([[2, 2], [2, 4], [1, 1]])
        padded_form = given(numpy.zeros((3, 8, 3)), spatial_shapes=shapes,
                            pixel_attention_mask=numpy.ones((3, 8), bool))  # fmt: skip
        for of_form, keys, kept in (
            (tiles, {"pixel_values"}, 2),
            (raster, {"pixel_values", "imgs_sizes"}, 12),
            (padded_form, {"pixel_values", "pixel_attention_mask", "spatial_shapes"}, 2),
        ):
            fields = self.fields(of_form)
            self.assertEqual(set(fields), keys | {"dummy_image"})
            self.assertIs(fields["pixel_values"], of_form["pixel_values"])
            last = () if of_form is raster else (3,)
            self.assertEqual(fields["dummy_image"], (1, 13, *last))
            dropped = self.fields(of_form, dummy_image="drop")
            self.assertEqual(set(dropped), keys)
            self.assertEqual(len(dropped["pixel_values"]), kept)
            for key in keys - {"pixel_values"}:
                self.assertEqual(dropped[key].tolist(), of_form[key][:2].tolist())

        class Both:
            """Two encoders: named arguments, and a function's."""

            encoders = {"one": {"x": "pixel_values", "sizes": "imgs_sizes"},
                        "two": lambda images: {"n": len(images["pixel_values"])}}  # fmt: skip

        fields = megatron_bridge.forward_inputs(tiles, encoders=Both.encoders, dummy_image="drop")
        fields = fields["modality_inputs"]["images"]
        self.assertEqual(fields["one"]["sizes"].tolist(), [[8, 8], [8, 16]])
        self.assertEqual(fields["two"], {"n": 2})
        with self.assertRaisesRegex(InvalidArgument, "argument grid: found no 'spatial_shapes'"):
            megatron_bridge.forward_inputs(tiles, encoders={"one": {"grid": "spatial_shapes"}})
        with self.assertRaisesRegex(InvalidArgument, "RADIO takes patches row by row"):
            megatron_bridge.radio(padded_form)

    def fields(self, given, **options):
        inputs = megatron_bridge.forward_inputs(given, **options)
        return inputs["modality_inputs"]["images"]["qwen_visual"]

    def videos(self, ids=True, dummy=False):
        """Sample 0: an image, a video of two patches of time, an image. Sample 1: a video.
        Merged by 2; a Qwen3-VL's video has text between its patches of time."""
        i, v = IMAGE, IMAGE + 1
        row = [1, i, i, 2, v, v, 3, v, v, 4, i, 5, 6, v, 7]
        values = {"position_ids": numpy.zeros((3, 1, len(row)), int),
                  "cu_seqlens_padded": numpy.array([0, 12, 15], numpy.int32)}  # fmt: skip
        if ids:
            values["input_ids"] = numpy.array([row])
        grids = [[1, 2, 4], [1, 2, 2]] + [[1, 2, 2]] * dummy
        values["image_grid_thw"] = numpy.array(grids)
        values["pixel_values"] = numpy.arange(12.0 + 4 * dummy)[:, None]
        values["video_grid_thw"] = numpy.array([[2, 2, 4], [1, 2, 2]])
        values["pixel_values_videos"] = 100 + numpy.arange(20.0)[:, None]
        values.update(cu_seqlens=numpy.array([0, 12, 15], numpy.int32), max_seqlen=12)
        loader = FakeLoader()
        loader.job["model"]["token_ids"]["video"] = v
        loader.job["model"]["video"] = {"sampling": "fps", "fps": 2.0}
        return megatron_bridge.Mimo(loader), batch_of(values, dummy)

    def test_videos_and_images_in_the_order_of_the_text(self):
        for dummy in (False, True):
            adapter, given = self.videos(dummy=dummy)
            inputs = adapter(given)
            fields = inputs["modality_inputs"]["images"]["qwen_visual"]
            wanted = [*range(8), *range(100, 116), *range(8, 12), *range(116, 120)]
            wanted += range(12, 16) if dummy else ()
            self.assertEqual(fields["hidden_states"][:, 0].tolist(), wanted)
            grids = [[1, 2, 4], [2, 2, 4], [1, 2, 2], [1, 2, 2]] + [[1, 2, 2]] * dummy
            self.assertEqual(fields["grid_thw"].tolist(), grids)
            self.assertEqual(fields.get("dummy_image"), (4, 36) if dummy else None)
            self.assertEqual(int((inputs["input_ids"] == IMAGE).sum()), 8)
            self.assertNotIn(IMAGE + 1, inputs["input_ids"])
            self.assertIn(IMAGE + 1, given["input_ids"])  # the batch stays

    def test_videos_of_a_rank_without_text(self):
        adapter, given = self.videos(ids=False)
        del given["position_ids"]
        given._counts = {"images": [2, 0], "videos": [0, 2]}
        rows = adapter(given)["modality_inputs"]["images"]["qwen_visual"]["hidden_states"]
        self.assertEqual(rows[:, 0].tolist(), [*range(12), *range(100, 120)])
        given._counts = {"images": [2, 0], "videos": [1, 1]}
        with self.assertRaisesRegex(FailedPrecondition, "sample 0.*2 images and 1 videos"):
            adapter(given)

    def test_videos_that_are_not_the_texts(self):
        adapter, given = self.videos()
        given["video_grid_thw"] = given["video_grid_thw"][:1]
        given["pixel_values_videos"] = given["pixel_values_videos"][:16]
        with self.assertRaisesRegex(InvalidArgument, "1 images and 2 videos|2 images and 2 videos"):
            adapter(given)
        adapter, given = self.videos()
        given["pixel_values_videos"] = numpy.zeros((3, 3, 4, 4))
        with self.assertRaisesRegex(InvalidArgument, r"shape \[3, 3, 4, 4\]"):
            adapter(given)

    def test_peers_out_of_order(self):
        self.assertEqual(image_tokens([(4, 2), (8, 3)], 2, 4), [1, 2])
        self.assertEqual(image_tokens([], 2, 4), [0, 0])
        for owners in ((1, 0), (1, 2)):
            with self.assertRaises(Internal):
                image_tokens([(4, owner) for owner in owners], 2, 4)
        self.assertEqual(rows_of([0, 0], 0).tolist(), [[1], [1]])


class TokensByPatchesTest(unittest.TestCase):
    """The table of CountsRowsByPatches in job_shape_test.cc."""

    def test_refuses_other_placeholders(self):
        for family, refused in (
            ({}, False),
            ({"rule": "RULE_TILE_GRID"}, False),
            ({"rule": "RULE_PINPOINTS"}, True),
            ({"tokens_a_row": 1}, True),
            ({"tokens_a_row": 1, "marks": {"before": "<b>"}}, True),
            ({"tokens_a_row": 1, "marks": {"row_end": "<e>"}}, False),
            ({"tokens_an_image": 2}, True),
            ({"tokens_an_image": 2, "marks": {"before": "<b>"}}, False),
            ({"tokens_an_image": 2, "marks": {"after": "<a>"}}, False),
        ):
            with self.subTest(family):
                if not refused:
                    require_tokens_by_patches({"image_family": family}, "another dp")
                    continue
                with self.assertRaisesRegex(FailedPrecondition, "do not follow from their patch"):
                    require_tokens_by_patches({"image_family": family}, "another dp")


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
        self.assertEqual(
            rows["position_ids"][1, 0].tolist(), [1000, 1001, 1002, 1003, 1004, 0, 0, 0]
        )
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
        adapter = bridge_vlm.Vlm(FakeLoader(), "qwen3_vl")
        for images, dummy in ((0, False), (1, True)):
            values["image_grid_thw"] = numpy.array([[1, 2, 2]][:images]).reshape(-1, 3)
            values["pixel_values"] = numpy.zeros((4 * images, 6), numpy.float32)
            given = batch_of(values, dummy)
            if dummy:
                with self.assertRaisesRegex(
                    FailedPrecondition, "dummy image: .*overlap_grad_reduce.*align_images: false"
                ):
                    adapter(given)
            else:
                self.assertIsNone(adapter(given)["visual_inputs"])

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
        self.assertEqual(inputs["visual_inputs"].image_grid_thw.tolist(), [[1, 4, 6], [1, 8, 2]])
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
        self.assertEqual(inputs["visual_inputs"].image_grid_thw.tolist(), [[1, 4, 2], [1, 2, 2]])

    def test_videos(self):
        given = whole()
        given["pixel_values_videos"] = numpy.ones((16, 1), numpy.float32)
        given["video_grid_thw"] = numpy.array([[2, 2, 4]])
        given["second_per_grid_ts"] = numpy.array([0.5], numpy.float32)
        for model in ("qwen2_5_vl", "qwen3_vl", "qwen3_5_vl"):
            visual = bridge_vlm.Vlm(FakeLoader(), model)(given)["visual_inputs"]
            kwargs = visual.normalized_for_model()
            for key in ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw",
                        "second_per_grid_ts"):  # fmt: skip
                self.assertIs(kwargs[key], given[key])
        for key in ("pixel_values", "image_grid_thw"):
            given[key] = given[key][:0]
        visual = bridge_vlm.Vlm(FakeLoader(), "qwen3_vl")(given)["visual_inputs"]
        self.assertEqual(
            set(visual.as_model_kwargs()),
            {"pixel_values_videos", "video_grid_thw", "second_per_grid_ts"},
        )
        rows = in_rows()
        rows["labels"] = rows["labels"][:, :4]
        with self.assertRaisesRegex(FailedPrecondition, "labels: found 4 of 8 tokens"):
            bridge_vlm.Vlm(FakeLoader(), "qwen3_vl")(rows)

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

    def test_videos_on_a_later_stage_are_refused(self):
        """Without their sizes the model numbers all tokens one by one, as text."""
        given = text()
        given.step_totals = types.SimpleNamespace(images=0, videos=0)
        given["input_ids"] = numpy.full_like(given["input_ids"], 1)
        adapters = (
            bridge_qwen3_vl.Qwen3VlStep(FakeLoader()), bridge_vlm.Vlm(FakeLoader(), "qwen2_5_vl")
        )  # fmt: skip
        for adapter in adapters:
            given.step_totals.videos = 0
            self.assertIsNone(adapter(given)["visual_inputs"])
            given.step_totals.videos = 2
            with self.assertRaisesRegex(InvalidArgument, "2 videos; only still images"):
                adapter(given)

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
        self.assertEqual(listed[1].tolist(), [[0, 8, 16, 20]])
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
        with self.assertRaisesRegex(
            FailedPrecondition, "3 images and 0 videos without their pixels"
        ):
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
