"""The adapter for Qwen2.5-VL and Qwen3-VL on batches with images and videos: losses of
small random models, fed by the adapter and by the models' own processors.

The batches are made here, of what the processors return, as a loader has them.
"""

import sys
import types
import unittest

import numpy

from ballast.adapters import huggingface, megatron_bridge
from ballast.adapters.huggingface_families import Family
from ballast.errors import InvalidArgument

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
           "<|image_pad|>", "<|video_pad|>"]  # fmt: skip
# Text with marks, sizes of the images, (frames, height, width) of the videos.
IMAGE, VIDEO = ("<|vision_start|><|%s_pad|><|vision_end|>" % kind for kind in ("image", "video"))
SAMPLES = [
    (VIDEO + "What moves?<|im_end|>A fox, twice." + IMAGE + "And here?", [(84, 56)], [(5, 56, 84)]),
    ("Hello there, nothing to see.", [], []),
    (IMAGE + "Between." + VIDEO + "two and" + VIDEO + "one.", [(56, 56)],
     [(4, 112, 56), (1, 56, 112)]),
    ("Only images: " + IMAGE + IMAGE + "End.", [(56, 112), (112, 112)], []),
    ("Only a video: " + VIDEO + "End of it.", [], [(6, 56, 56)]),
]  # fmt: skip
ALIGN = 4


class Batch(dict):
    images_per_sample = [len(images) for _, images, _ in SAMPLES]
    videos_per_sample = [len(videos) for _, _, videos in SAMPLES]
    dummy_image = True
    image_token = 0


def pixels(shape, seed):
    return numpy.random.default_rng(seed).integers(0, 256, shape, numpy.uint8)


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_alone = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found = PreTrainedTokenizerFast(
        tokenizer_object=bytes_alone, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    found.add_special_tokens({"additional_special_tokens": SPECIAL})
    return found


def examples():
    """trainer_shim/python/examples/hf.py: processors and small models."""
    sys.path.insert(0, "trainer_shim/python/examples")
    import hf

    return hf


def inputs_of(processor, sample):
    """One sample as its processor makes it. Frames are taken as they are."""
    import PIL.Image

    text, images, videos = sample
    given = {"text": [text], "return_tensors": "pt"}
    if images:
        given["images"] = [PIL.Image.fromarray(pixels((*size, 3), 7)) for size in images]
    if videos:
        given["videos"] = [pixels((*size, 3), 8) for size in videos]
        given["do_sample_frames"] = False
        given["do_resize"] = False
        # Of frames that were sampled at 2 a second.
        given["video_metadata"] = [
            {"fps": 2.0, "total_num_frames": size[0], "duration": size[0] / 2,
             "frames_indices": list(range(size[0])), "height": size[1], "width": size[2]}
            for size in videos
        ]  # fmt: skip
    return processor(**given)


def positions_of(model, inputs):
    """[3, tokens] rotary positions, as the model computes them."""
    import inspect

    keys = ("mm_token_type_ids", "image_grid_thw", "video_grid_thw", "second_per_grid_ts")
    known = inspect.signature(model.model.get_rope_index).parameters
    given = {key: inputs[key] for key in keys if key in inputs and key in known}
    return model.model.get_rope_index(inputs["input_ids"], **given)[0][:, 0]


def batch_of(every, positions):
    """The batch of all samples in one row, with a dummy image."""
    import torch

    rows = {"input_ids": [], "labels": []}
    places, lengths = [], []
    for inputs, axes in zip(every, positions):
        ids = inputs["input_ids"][0].tolist()
        room = -(-len(ids) // ALIGN) * ALIGN
        rows["input_ids"] += ids + [0] * (room - len(ids))
        rows["labels"] += ids[1:] + [-100] * (room - len(ids) + 1)
        places.append(torch.nn.functional.pad(axes, (0, room - len(ids))))
        lengths.append((len(ids), room))
    batch = Batch({key: torch.tensor([row]) for key, row in rows.items()})
    batch["position_ids"] = torch.cat(places, 1)[:, None]
    real, padded = (numpy.cumsum([0, *each]).astype(numpy.int32) for each in zip(*lengths))
    batch["cu_seqlens"], batch["cu_seqlens_padded"] = map(torch.from_numpy, (real, padded))
    batch["max_seqlen"] = int(numpy.diff(padded).max())
    for values, grid in (("pixel_values", "image_grid_thw"),
                         ("pixel_values_videos", "video_grid_thw")):  # fmt: skip
        batch[values] = torch.cat([each[values] for each in every if values in each])
        batch[grid] = torch.cat([each[grid] for each in every if grid in each])
    width = batch["pixel_values"].shape[1]
    batch["pixel_values"] = torch.cat([batch["pixel_values"], torch.full((4, width), 0.5)])
    batch["image_grid_thw"] = torch.cat([batch["image_grid_thw"], torch.tensor([[1, 2, 2]])])
    return batch


def patches_of(frames, patch, mean, std):
    """The rows of pixel_values_videos, by the formula of patchify.h, of [F, H, W, 3]."""
    count, height, width, _ = frames.shape
    h, w = height // patch, width // patch
    pairs = -(-count // 2)
    rows = numpy.empty((pairs * h * w, 3, 2, patch, patch), numpy.float32)
    scaled = (frames.astype(numpy.float32) - numpy.float32(255) * mean) / (numpy.float32(255) * std)
    for pair in range(pairs):
        for gh in range(h):
            for gw in range(w):
                row = pair * h * w + (gh // 2 * (w // 2) + gw // 2) * 4 + gh % 2 * 2 + gw % 2
                for tp in range(2):
                    frame = scaled[min(2 * pair + tp, count - 1)]
                    corner = frame[gh * patch : (gh + 1) * patch, gw * patch : (gw + 1) * patch]
                    rows[row, :, tp] = corner.transpose(2, 0, 1)
    return rows.reshape(len(rows), -1)


class VideoLossTest(unittest.TestCase):
    def each(self):
        import torch

        hf = examples()
        words = tokenizer()
        for profile in ("qwen2_5_vl", "qwen3_vl"):
            images = hf.image_processor_of(profile, 3136, 1 << 20, pil=False)
            processor = hf.processor_of(profile, words, images)
            patch, mean, std = hf.SHAPES[profile]
            video = processor.video_processor
            video.patch_size, video.image_mean, video.image_std = patch, mean, std
            samples = [
                (text, [self.whole(size, patch) for size in images],
                 [(f, *self.whole(size, patch)) for f, *size in videos])
                for text, images, videos in SAMPLES
            ]  # fmt: skip
            model = hf.model_of(profile, words)
            every = [inputs_of(processor, sample) for sample in samples]
            with self.subTest(profile), torch.no_grad():
                yield profile, hf, samples, model, every

    @staticmethod
    def whole(size, patch):
        """A size in multiples of 28 as one in multiples of two patches."""
        return tuple(side // 28 * 2 * patch for side in size)

    def test_losses_are_the_processors(self):
        import torch

        for _, _, _, model, every in self.each():
            batch = batch_of(every, [positions_of(model, inputs) for inputs in every])
            batch.image_token = model.config.image_token_id
            losses, counts = [], []
            unpacked = huggingface.unpacked(batch)
            self.assertEqual(len(unpacked), len(every))
            for inputs, ours in zip(every, unpacked):
                ids = inputs["input_ids"]
                labels = torch.where(torch.arange(ids.shape[1]) > 0, ids, -100)
                # The dummy image's token follows the last sample.
                self.assertTrue(torch.equal(ours["labels"][:, : ids.shape[1]], labels))
                self.assertFalse((ours["labels"][:, ids.shape[1] :] != -100).any())
                losses.append(model(**inputs, labels=labels).loss.item())
                counts.append(ids.shape[1] - 1)
                self.assertAlmostEqual(model(**ours).loss.item() / losses[-1], 1, delta=1e-6)
            mean = numpy.average(losses, weights=counts)
            for inputs in (huggingface.packed(batch), huggingface.padded(batch)):
                self.assertAlmostEqual(model(**inputs).loss.item() / mean, 1, delta=1e-5)
            # The samples' losses tell their videos apart.
            batch["pixel_values_videos"] = batch["pixel_values_videos"].flip(0)
            self.assertNotAlmostEqual(
                model(**huggingface.packed(batch)).loss.item() / mean, 1, delta=1e-5
            )

    def test_attention_stays_within_a_temporal_patch(self):
        """A change in one temporal patch changes the tower's rows of no other."""
        for _, _, _, model, every in self.each():
            values = every[0]["pixel_values_videos"].clone()
            grid = every[0]["video_grid_thw"]
            t, h, w = grid[0].tolist()
            self.assertEqual(t, 3)
            before = model.model.visual(values, grid_thw=grid).pooler_output
            values[h * w : 2 * h * w] += 1
            after = model.model.visual(values, grid_thw=grid).pooler_output
            changed = (before != after).any(1).reshape(t, -1)
            self.assertEqual(changed.any(1).tolist(), [False, True, False])

    def test_rows_are_the_processors(self):
        for _, hf, samples, _, every in self.each():
            profile = "qwen3_vl" if samples[0][1][0][0] % 32 == 0 else "qwen2_5_vl"
            patch, mean, std = hf.SHAPES[profile]
            for (_, _, videos), inputs in zip(samples, every):
                if not videos:
                    self.assertNotIn("pixel_values_videos", inputs)
                    continue
                rows = [
                    patches_of(pixels((*size, 3), 8), patch,
                               numpy.float32(mean), numpy.float32(std))
                    for size in videos
                ]  # fmt: skip
                grids = [[-(-f // 2), h // patch, w // patch] for f, h, w in videos]
                self.assertEqual(inputs["video_grid_thw"].tolist(), grids)
                numpy.testing.assert_allclose(
                    inputs["pixel_values_videos"].numpy(), numpy.concatenate(rows), atol=1e-6
                )


class VideoArgumentsTest(unittest.TestCase):
    """Without torch: which arguments there are."""

    def batch(self, videos=1):
        batch = Batch(
            input_ids=numpy.arange(8)[None], labels=numpy.arange(8)[None],
            position_ids=numpy.arange(8)[None], max_seqlen=8,
            cu_seqlens=numpy.array([0, 8]), cu_seqlens_padded=numpy.array([0, 8]),
            pixel_values=numpy.zeros((4, 6)), image_grid_thw=numpy.array([[1, 2, 2]]),
            pixel_values_videos=numpy.ones((8 * videos, 6)),
            video_grid_thw=numpy.array([[2, 2, 2]] * videos).reshape(-1, 3),
            second_per_grid_ts=numpy.ones(videos, numpy.float32),
        )  # fmt: skip
        batch.images_per_sample, batch.videos_per_sample = [0], [videos]
        batch.image_token = 7
        return batch

    def test_a_dummy_image_beside_videos(self):
        for make in (huggingface.packed, huggingface.padded, lambda b: huggingface.unpacked(b)[0]):
            inputs = make(self.batch())
            self.assertEqual(inputs["pixel_values_videos"].shape, (8, 6))
            self.assertEqual(inputs["video_grid_thw"].tolist(), [[2, 2, 2]])
            self.assertEqual(inputs["input_ids"][0, 8], 7)
            self.assertEqual(inputs["image_grid_thw"].tolist(), [[1, 2, 2]])

    def test_text_alone(self):
        batch = self.batch(videos=0)
        batch.update(pixel_values=numpy.zeros((0, 6)), image_grid_thw=numpy.zeros((0, 3), int))
        batch.dummy_image = False
        for make in (huggingface.packed, huggingface.padded, lambda b: huggingface.unpacked(b)[0]):
            inputs = make(batch)
            self.assertFalse({key for key in inputs if "pixel" in key or "grid" in key})

    def test_others_refuse_videos_by_name(self):
        for videos in (0, 1):
            batch = self.batch(videos)
            with self.assertRaisesRegex(InvalidArgument, "pixel_values_videos: found videos"):
                megatron_bridge.forward_inputs(batch)
            family = Family(types.SimpleNamespace(model_type="glm4v"))
            with self.assertRaisesRegex(InvalidArgument, "pixel_values_videos: found videos"):
                family.packed(batch)


if __name__ == "__main__":
    unittest.main()
