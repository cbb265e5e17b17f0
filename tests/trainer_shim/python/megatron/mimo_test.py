"""The MIMO adapter on Megatron-Core's real MimoModel, with batches made by hand."""

import copy
import math
import types
import unittest
from unittest import mock

import torch
from megatron.core.models.mimo.submodules.audio import AudioModalitySubmodules
from megatron.core.transformer.spec_utils import ModuleSpec

import model as models
import single
from ballast.adapters import megatron_bridge
from ballast.adapters._peers import image_tokens, rows_of
from ballast.batch import Batch
from ballast.errors import FailedPrecondition, InvalidArgument
from loss import difference, farthest
from tests.trainer_shim.python import adapters_megatron_test as consumers

IDS = {"image": 256, "video": 257, "vision_start": 258, "vision_end": 259}
AUDIO = 260
VALUES = 3 * 2 * 14 * 14
GRIDS = [(1, 4, 4), (1, 2, 6)]  # 4 and 3 tokens


def batch(grids, dummy=None):
    """One sample with these images, followed by a dummy image."""
    row = [1, 2]
    for t, h, w in grids:
        row += [IDS["vision_start"], *[IDS["image"]] * (t * h * w // 4), IDS["vision_end"], 3]
    row += [4, 5, 6]
    given = Batch()
    given["input_ids"] = torch.tensor([row])
    given["labels"] = torch.tensor([row[1:] + [-100]])
    given["loss_mask"] = torch.tensor([[1.0] * (len(row) - 1) + [0.0]])
    given["position_ids"] = torch.arange(len(row)).expand(3, 1, -1)
    given["cu_seqlens"] = torch.tensor([0, len(row)], dtype=torch.int32)
    given["cu_seqlens_padded"] = given["cu_seqlens"]
    given["max_seqlen"] = len(row)
    every = list(grids) + ([dummy] if dummy else [])
    generator = torch.Generator().manual_seed(len(every))
    patches = sum(t * h * w for t, h, w in every)
    given["pixel_values"] = torch.randn(patches, VALUES, generator=generator)
    given["image_grid_thw"] = torch.tensor(every, dtype=torch.int64).reshape(-1, 3)
    given.dummy_image = dummy is not None
    return given


class Ears(torch.nn.Module):
    """A row of each pair of frames that count."""

    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(4, 64)
        with torch.no_grad():
            self.out.weight.copy_(torch.linspace(-1, 1, 256).reshape(64, 4))
            self.out.bias.fill_(0.1)

    def forward(self, input_features, seq_lengths):
        clips = zip(input_features, seq_lengths.tolist())
        return self.out(torch.cat([x[:, :n].T.reshape(-1, 2, 4).mean(1) for x, n in clips]))


def hearing_model(source, groups=None, ears=Ears, **options):
    """MimoModel with a second encoder, of audio."""
    audio = ModuleSpec(
        module=AudioModalitySubmodules,
        params={"pg_collection": groups["audios"]} if "audios" in (groups or {}) else {},
        submodules={"encoders": {"whisper_encoder": ModuleSpec(module=ears)}},
    )
    model = models.mimo_model(
        source, IDS["image"], groups=groups, more={"audios": (audio, AUDIO)}, **options
    )
    return megatron_bridge.accept_dummy_images(model)


def with_clips(given, frames):
    """The batch with clips of so many frames at the beginning of its text."""
    row = given["input_ids"][0].tolist()
    row = [AUDIO] * (sum(frames) // 2) + row
    given["input_ids"] = torch.tensor([row])
    given["labels"] = torch.tensor([row[1:] + [-100]])
    given["loss_mask"] = torch.tensor([[1.0] * (len(row) - 1) + [0.0]])
    given["position_ids"] = torch.arange(len(row)).expand(3, 1, -1)
    given["cu_seqlens"] = given["cu_seqlens_padded"] = torch.tensor([0, len(row)]).int()
    given["max_seqlen"] = len(row)
    generator = torch.Generator().manual_seed(3)
    given["input_features"] = torch.randn(sum(frames), 4, generator=generator)
    given["audio_feature_lengths"] = torch.tensor(frames)
    given["audio_cu_rows"] = torch.tensor([0, *frames]).cumsum(0).int()
    return given


class MimoTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(single.process())
        cls.source = models.hugging_face(IDS, 320, layers=1)
        cls.model = models.mimo_model(cls.source, IDS["image"])

    def gradients(self, given, **options):
        """(loss, gradients by name); None for a weight that took no part."""
        self.model.zero_grad(set_to_none=True)
        loss = single.loss_sum(self.model, megatron_bridge.forward_inputs(given, **options))
        loss.backward()
        return loss.detach(), {n: p.grad for n, p in self.model.named_parameters()}

    def tower(self, gradients):
        return {n: g for n, g in gradients.items() if n.startswith("modality_submodules")}

    def test_dummy_image_changes_neither_loss_nor_gradients(self):
        plain = batch(GRIDS)
        with_dummy = batch(GRIDS, dummy=(1, 4, 8))
        with_dummy["pixel_values"][: 16 + 12] = plain["pixel_values"]
        wanted, expected = self.gradients(plain)
        for way in ("zero", "drop"):
            loss, found = self.gradients(with_dummy, dummy_image=way)
            torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=0)
            for name, gradient in expected.items():
                torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-5)

    def test_dummy_image_alone_gives_gradients_of_zero(self):
        given = batch([], dummy=(1, 2, 2))
        loss, found = self.gradients(given, dummy_image="zero")
        for name, gradient in self.tower(found).items():
            self.assertIsNotNone(gradient, name)
            self.assertEqual(float(gradient.abs().max()), 0.0, name)
        dropped, found = self.gradients(given, dummy_image="drop")
        torch.testing.assert_close(loss, dropped)
        self.assertEqual(set(self.tower(found).values()), {None})

    def test_videos_beside_images(self):
        # Against Hugging Face's model, which runs its tower over images and over videos.
        given = batch(GRIDS)
        video = [IDS["vision_start"], *[IDS["video"]] * 8, IDS["vision_end"]]  # of 2 x 4 x 4
        row = given["input_ids"][0].tolist()
        middle = row.index(3) + 1  # after the first image
        row = row[:middle] + video + row[middle:]
        given["input_ids"] = torch.tensor([row])
        given["labels"] = torch.tensor([row[1:] + [-100]])
        given["loss_mask"] = torch.tensor([[1.0] * (len(row) - 1) + [0.0]])
        given["position_ids"] = torch.arange(len(row)).expand(3, 1, -1)
        given["cu_seqlens"] = given["cu_seqlens_padded"] = torch.tensor([0, len(row)]).int()
        given["max_seqlen"] = len(row)
        given["pixel_values_videos"] = torch.randn(
            32, VALUES, generator=torch.Generator().manual_seed(9)
        )
        given["video_grid_thw"] = torch.tensor([[2, 4, 4]])
        loader = types.SimpleNamespace(job=consumers.job(), schedule=None)
        loader.job["model"].update(
            token_ids={"image": IDS["image"], "video": IDS["video"]}, video={"fps": 2.0}
        )
        inputs = megatron_bridge.Mimo(loader, model=self.model)(given)
        loss = single.loss_sum(self.model, inputs)
        keys = ("input_ids", "position_ids", "pixel_values", "image_grid_thw",
                "pixel_values_videos", "video_grid_thw")  # fmt: skip
        logits = self.source(**{key: given[key] for key in keys}).logits
        wanted = torch.nn.functional.cross_entropy(logits[0], given["labels"][0], reduction="sum")
        torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=0)

    def job(self, **audio):
        loader = types.SimpleNamespace(job=consumers.job(), schedule=None)
        loader.job["model"]["token_ids"].update(image=IDS["image"], audio=AUDIO)
        if audio:
            loader.job["modules"].append({"module": "audio", **audio})
        return loader

    def test_clips_beside_images(self):
        model = hearing_model(self.source)
        given = with_clips(batch(GRIDS), [6, 4])
        to_mimo = megatron_bridge.Mimo(self.job(dp=1), model=model)
        inputs = to_mimo(given)
        clips = inputs["modality_inputs"]["audios"]["whisper_encoder"]
        self.assertEqual(tuple(clips["input_features"].shape), (2, 4, 6))
        self.assertEqual(clips["seq_lengths"].tolist(), [6, 4])
        loss = single.loss_sum(model, inputs)
        # Hugging Face's model over rows that are put in their places here.
        ids = given["input_ids"]
        rows = self.source.model.language_model.embed_tokens(ids).clone()
        seen = self.source.model.visual(
            given["pixel_values"], given["image_grid_thw"]
        ).pooler_output
        rows[ids == IDS["image"]] = torch.cat(tuple(seen)) if isinstance(seen, tuple) else seen
        ears = model.modality_submodules["audios"].encoders["whisper_encoder"]
        pairs = given["input_features"].reshape(-1, 2, 4).mean(1)
        rows[ids == AUDIO] = ears.out(pairs)
        logits = self.source(inputs_embeds=rows, position_ids=given["position_ids"]).logits
        wanted = torch.nn.functional.cross_entropy(logits[0], given["labels"][0], reduction="sum")
        torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=0)
        loss.backward()
        self.assertGreater(float(ears.out.weight.grad.abs().sum()), 0)
        # Audio alone, under names of one's own.
        alone = megatron_bridge.forward_inputs(
            with_clips(batch([]), [4]), audio_modality="heard",
            audio_encoders={"conformer": {"x": "input_features", "mask": "feature_attention_mask"}},
        )["modality_inputs"]  # fmt: skip
        self.assertEqual(list(alone), ["heard"])
        self.assertEqual(sorted(alone["heard"]["conformer"]), ["mask", "x"])

    def test_a_dummy_clip_gives_gradients_of_zero(self):
        model = hearing_model(self.source)
        losses = {}
        for kind in ("zero", "drop"):
            given = batch(GRIDS)
            given.update(
                input_features=torch.zeros(4, 4), audio_feature_lengths=torch.tensor([4]),
                audio_cu_rows=torch.tensor([0, 4]).int(),
            )  # fmt: skip
            given.dummy_clip = True
            model.zero_grad(set_to_none=True)
            to_mimo = megatron_bridge.Mimo(self.job(dp=1), model=model, dummy_image=kind)
            losses[kind] = single.loss_sum(model, to_mimo(given))
            losses[kind].backward()
            ears = model.modality_submodules["audios"].encoders["whisper_encoder"].out
            if kind == "zero":
                self.assertEqual(float(ears.weight.grad.abs().max()), 0.0)
                self.assertEqual(float(ears.bias.grad.abs().max()), 0.0)
            else:
                self.assertIsNone(ears.weight.grad)
        self.assertEqual(float(losses["zero"].detach()), float(losses["drop"].detach()))

    def test_refuses_what_would_train_without_clips(self):
        def refused(error, message, loader, model=None, given=None, **options):
            with self.assertRaisesRegex(error, message):
                to_mimo = megatron_bridge.Mimo(loader, model=model, **options)
                to_mimo(given)

        refused(InvalidArgument, "audio_modality: found 'audios'; .* ignore the clips",
                self.job(dp=1), self.model)  # fmt: skip
        model = hearing_model(self.source)
        refused(InvalidArgument, "audio_encoders: found \\['ears'\\]", self.job(dp=1), model,
                audio_encoders="ears")  # fmt: skip
        other = self.job(dp=1)
        other.job["model"]["token_ids"]["audio"] = 7
        refused(InvalidArgument, "found %d; wanted the job's audio token, 7" % AUDIO, other, model)
        refused(FailedPrecondition, "audio.dp 2 and language.dp 1 with colocated: true",
                self.job(dp=2), model)  # fmt: skip
        refused(FailedPrecondition, "audio.pp: found 2", self.job(dp=1, pp=2), model)
        with mock.patch.object(megatron_bridge, "accept_dummy_images", lambda model: model):
            bare = hearing_model(self.source)
        refused(FailedPrecondition, "encoder 'whisper_encoder' of modality 'audios' does not take",
                self.job(dp=1), bare)  # fmt: skip
        megatron_bridge.Mimo(self.job(dp=1), model=bare, dummy_image="drop")
        deaf = batch(GRIDS)
        deaf.totals = types.SimpleNamespace(clips=2, images=0, videos=0)
        refused(FailedPrecondition, "2 clips of audio in a job without the module audio",
                self.job(), None, deaf)  # fmt: skip
        with self.assertRaisesRegex(
            InvalidArgument, "argument x: found no 'pixels' of the batch's"
        ):
            megatron_bridge.forward_inputs(
                with_clips(batch([]), [4]), audio_encoders={"e": {"x": "pixels"}}
            )

    def test_text_alone(self):
        given = batch([])
        self.assertIsNone(megatron_bridge.forward_inputs(given)["modality_inputs"])
        loss, found = self.gradients(given)
        self.assertTrue(torch.isfinite(loss))
        self.assertEqual(set(self.tower(found).values()), {None})

    def test_a_tower_without_the_hook_refuses_a_dummy_image(self):
        encoder = models.Tower(copy.deepcopy(self.source.model.visual))
        inputs = megatron_bridge.forward_inputs(batch(GRIDS, dummy=(1, 2, 2)))
        with self.assertRaisesRegex(TypeError, "dummy_image"):
            encoder(**inputs["modality_inputs"]["images"]["qwen_visual"])

    def test_an_encoder_without_the_hook_is_refused_before_the_first_step(self):
        def adapter(model, **options):
            loader = types.SimpleNamespace(job=consumers.job(), schedule=None)
            loader.job["model"]["token_ids"]["image"] = IDS["image"]
            return megatron_bridge.Mimo(loader, model=model, **options)

        def parallel(model):
            """In the wrappers of Bridge: Float16Module around all, data parallelism around
            the modality."""

            class Wrapper(torch.nn.Module):
                def __init__(self, module):
                    super().__init__()
                    self.module = module

            model.modality_submodules["images"] = Wrapper(model.modality_submodules["images"])
            return Wrapper(model)

        bare = mock.patch.object(megatron_bridge, "accept_dummy_image", lambda tower: tower)
        for wrapped in (lambda model: model, parallel):
            with bare:
                model = models.mimo_model(self.source, IDS["image"])
            given = wrapped(model)
            with self.assertRaisesRegex(
                FailedPrecondition, r"encoder 'qwen_visual' .*accept_dummy_image\(encoder\)"
            ):
                adapter(given)
            adapter(given, dummy_image="drop")
            self.assertIs(megatron_bridge.accept_dummy_images([given])[0], given)
            adapter(given)
            adapter(wrapped(models.mimo_model(self.source, IDS["image"])))
            # Once more changes nothing: the dummy's rows are dropped once.
            megatron_bridge.accept_dummy_images(given)
            fields = megatron_bridge.forward_inputs(batch(GRIDS, dummy=(1, 2, 2)))
            tower = megatron_bridge._encoders(model)["images"]["qwen_visual"]
            self.assertEqual(len(tower(**fields["modality_inputs"]["images"]["qwen_visual"])), 7)
        with bare:
            model = models.mimo_model(self.source, IDS["image"])
        tower = model.modality_submodules["images"].encoders["qwen_visual"]

        class OfItsOwn(models.Tower):
            def forward(self, hidden_states, grid_thw, dummy_image=None):
                return super().forward(hidden_states, grid_thw)

        model.modality_submodules["images"].encoders["qwen_visual"] = OfItsOwn(tower.tower)
        adapter(model)
        # A rank of the language has no encoder.
        del model.modality_submodules["images"]
        adapter(model)
        self.assertIs(megatron_bridge.accept_dummy_images(model), model)
        with self.assertRaisesRegex(InvalidArgument, "found Linear; wanted a MimoModel"):
            megatron_bridge.accept_dummy_images(torch.nn.Linear(1, 1))

    def test_peer_rows_split_the_towers_output(self):
        # Samples of 16, 12 and 24 patches; the first two belong to language rank 2.
        counts = image_tokens([(16, 2), (12, 2), (24, 3)], 2, 4)
        self.assertEqual(counts, [7, 6])
        ids = torch.from_numpy(rows_of(counts, IDS["image"]))
        self.assertEqual(tuple(ids.shape), (2, 7))
        output = torch.zeros(13, 64)
        self.model._attach_modality_split_sizes(output, ids, models.MODALITY)
        self.assertEqual(output._mimo_bridge_split_sizes, [7, 6])

    def test_a_tuple_of_outputs(self):
        class Deep(torch.nn.Module):
            def forward(self, hidden_states, grid_thw):
                rows = hidden_states.view(-1, 4, VALUES).sum(1)
                return rows, [rows * 2]

        tower = megatron_bridge.accept_dummy_image(Deep())
        given = batch(GRIDS, dummy=(1, 2, 2))
        fields = megatron_bridge.forward_inputs(given)["modality_inputs"]["images"]["qwen_visual"]
        rows, (deep,) = tower(**fields)
        self.assertEqual((len(rows), len(deep)), (7, 7))
        torch.testing.assert_close(rows, given["pixel_values"][:28].view(-1, 4, VALUES).sum(1))

    def test_gradients_that_are_not_numbers_differ(self):
        one, none, unknown = torch.ones(2), torch.zeros(2), torch.full((2,), math.nan)
        for found, wanted in ((unknown, one), (one, unknown), (none, none), (one, none)):
            result = farthest(
                {"a": one, "b": found, "c": one}, {"a": one, "b": wanted, "c": 2 * one}
            )
            self.assertEqual(result, (math.inf, "b"))
        self.assertEqual(farthest({"a": one, "b": one}, {"a": one, "b": 2 * one}), (0.5, "b"))
        self.assertEqual(difference(math.nan, 1.0), math.inf)
        self.assertEqual(difference(1.5, 2.0), 0.25)

    def test_scalable_forward_step(self):
        # The forward step of Bridge's pull request 5525, with scalable_dp and without
        # packing of its own, in a process with both modules: it moves tensors in nested
        # dictionaries, tuples and lists, and calls the model with every key. Its source
        # is not run here.
        def moved(value):
            if isinstance(value, dict):
                return {key: moved(entry) for key, entry in value.items()}
            if isinstance(value, (list, tuple)):
                return type(value)([moved(entry) for entry in value])
            return value.clone() if isinstance(value, torch.Tensor) else value

        for given in (batch(GRIDS), batch(GRIDS, dummy=(1, 2, 2)), batch([])):
            inputs = moved(megatron_bridge.forward_inputs(given))
            losses, loss_mask = self.model(**inputs)
            self.assertEqual(losses.shape, given["labels"].shape)
            self.assertEqual(int(loss_mask.sum()), given["labels"].shape[1] - 1)


if __name__ == "__main__":
    unittest.main()
