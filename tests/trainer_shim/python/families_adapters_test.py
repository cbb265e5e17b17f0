"""The adapter for models of crops: losses of small random models of transformers, fed
by the adapter and by the models' own processors.

The batches are made here, of the processors' crops, as a loader has them.
"""

import importlib.util
import unittest

import numpy

from ballast.adapters import huggingface
from ballast.adapters.huggingface_families import Family
from ballast.errors import FailedPrecondition, InvalidArgument, Unimplemented

MISSING = [name for name in ("transformers", "torch", "torchvision", "PIL", "jinja2")
           if importlib.util.find_spec(name) is None]  # fmt: skip
CONVERSATIONS = [
    [("user", [(640, 480), "What is this?"]), ("assistant", ["A brown fox."])],
    [("user", ["Hello"]), ("assistant", ["Hello, world!"])],
    [("user", ["Compare ", (300, 500), " with \n", (500, 300), "\n\nWhich?"]),
     ("assistant", ["The second."])],
]  # fmt: skip
ALIGN = 4
#: Families whose models take patches.
PATCHES = (
    "ernie4_5_vl",
    "gemma4",
    "gemma4_blocks",
    "glm4v",
    "hunyuan_vl",
    "kimi_k25",
    "minicpmv4_6",
)
#: Why a family's model takes no packed row.
NOT_PACKED = {
    "gemma3": "mixes up the images", "gemma3_pan_and_scan": "mixes up the images",
    "gemma4_blocks": "mixes up the images", "hunyuan_vl": "see each other",
    "minicpmv4_6": "linear attention",
}  # fmt: skip


class Images(dict):
    """A batch: a dictionary, and how many images each sample has."""

    images_per_sample = [1, 0, 2]
    dummy_image = True


def crops_of(family, inputs):
    """[n, 3, H, W] crops of one sample, crops of each image, sizes of images."""
    import torch

    pixels = inputs.get("pixel_values")
    if pixels is None:
        return [], [], []
    sizes = [tuple(s) for s in inputs.get("image_sizes", torch.zeros(0, 2)).tolist()]
    if family.startswith("llava_"):
        # Each image's crops, then zeros up to the image with most.
        lists = [list(image) for image in pixels] if pixels.dim() == 5 else [[i] for i in pixels]
        lists = [[crop for crop in crops if crop.any()] for crops in lists]
        return [c for crops in lists for c in crops], [len(crops) for crops in lists], sizes
    if family in ("idefics3", "smolvlm"):
        pixels = pixels[0]
    return list(pixels), None, sizes


def patches_of(family, inputs):
    """[patches, values] patches as a loader has them, row by row or in merge order, and
    the [crops, 3] grids. Gemma 4's are [crops, max_patches, values]."""
    import torch

    pixels = inputs["pixel_values"]
    if family.startswith("gemma4"):
        sides = inputs["image_position_ids"].amax(1).flip(1) + 1
    elif family == "minicpmv4_6":  # a strip of patches, side by side
        sides = inputs["target_sizes"]
        side = pixels.shape[2]
        pixels = pixels.reshape(3, side, -1, side).permute(2, 0, 1, 3).flatten(1)
    else:
        return pixels.flatten(1), inputs["image_grid_thw"]
    return pixels, torch.cat([torch.ones_like(sides[:, :1]), sides], 1).long()


def positions_of(model, inputs, placeholder):
    """[axes, tokens] position ids of one sample."""
    import torch

    ids = inputs["input_ids"]
    if model.config.model_type not in ("ernie4_5_vl_moe", "glm4v", "hunyuan_vl"):
        return torch.arange(ids.shape[1])[None]
    return model.model.get_rope_index(
        ids, (ids == placeholder).int(), inputs.get("image_grid_thw")
    )[0][:, 0]


def batch_of(family, inputs_of_samples, labels, positions):
    """The batch of all samples in one row, with a dummy image."""
    import torch

    row = {"input_ids": [], "labels": []}
    places = []
    lengths, crops, counts, sizes, grids, patches = [], [], [], [], [], []
    for inputs, own in zip(inputs_of_samples, labels):
        ids = inputs["input_ids"][0].tolist()
        room = -(-len(ids) // ALIGN) * ALIGN
        pad = [0] * (room - len(ids))
        row["input_ids"] += ids + pad
        # Shifted, as a loader has them.
        row["labels"] += own[1:] + [-100] + [-100] * len(pad)
        places.append(torch.nn.functional.pad(positions[len(lengths)], (0, len(pad))))
        lengths.append((len(ids), room))
        if family in PATCHES:
            if "pixel_values" in inputs:
                pixels, sides = patches_of(family, inputs)
                patches.append(pixels)
                grids += sides.tolist()
            continue
        some, per_image, of_images = crops_of(family, inputs)
        crops += some
        counts += per_image if per_image is not None else [1] * len(some)
        sizes += of_images
    batch = Images({key: torch.tensor([value]) for key, value in row.items()})
    batch["position_ids"] = torch.cat(places, 1)
    if len(batch["position_ids"]) > 1:
        batch["position_ids"] = batch["position_ids"][:, None]
    real, padded = zip(*lengths)
    batch["cu_seqlens"] = torch.tensor(numpy.cumsum([0, *real]), dtype=torch.int32)
    batch["cu_seqlens_padded"] = torch.tensor(numpy.cumsum([0, *padded]), dtype=torch.int32)
    batch["max_seqlen"] = max(padded)
    if patches:
        grids.append([1, 2, 2])
        rows = 1 if family.startswith("gemma4") else 4
        patches.append(torch.full((rows, *patches[0].shape[1:]), 0.5))
        batch["pixel_values"] = torch.cat(patches)
        batch["image_grid_thw"] = torch.tensor(grids)
        batch["crops_per_image"] = torch.ones(len(grids), dtype=torch.int64)
        if family not in ("ernie4_5_vl", "glm4v"):  # in merge order
            batch["imgs_sizes"] = batch["image_grid_thw"][:, 1:] * 14
        return batch
    if family == "pixtral":
        # Each crop without what the processor padded it with in its sample.
        crops = [crop[:, :h, :w] for crop, (h, w) in zip(crops, sizes)]
        sizes.append((16, 32))
        crops.append(torch.full((3, 16, 32), 0.5))
    else:
        crops.append(torch.full_like(crops[0], 0.5))
        sizes.append(tuple(crops[-1].shape[-2:]))
    height, width = (max(crop.shape[axis] for crop in crops) for axis in (1, 2))
    tiles = torch.zeros(len(crops), 3, height, width)
    for tile, crop in zip(tiles, crops):
        tile[:, : crop.shape[1], : crop.shape[2]] = crop
    batch["pixel_values"] = tiles
    batch["imgs_sizes"] = torch.tensor([list(crop.shape[-2:]) for crop in crops])
    batch["image_grid_thw"] = torch.ones(len(crops), 3, dtype=torch.int64)
    batch["crops_per_image"] = torch.tensor(counts + [1])
    batch["image_sizes"] = torch.tensor(sizes)
    if not family.startswith("llava_"):
        batch["crops_per_image"] = torch.ones(len(crops), dtype=torch.int64)
    return batch


@unittest.skipIf(MISSING, "SKIPPED: Python lacks %s (BALLAST_PYTHON)" % ", ".join(MISSING))
class LossTest(unittest.TestCase):
    def check(self, family):
        import torch

        from tests.trainer_shim.python import family_models

        processor = family_models.processor_of(family)
        placeholder = family_models.placeholder_of(family, processor)
        model = family_models.model_of(family, processor)
        torch.set_num_threads(1)
        samples = [family_models.inputs_of(processor, turns) for turns in CONVERSATIONS]
        labels = [
            [
                -100 if i < 2 or token == placeholder else token
                for i, token in enumerate(sample["input_ids"][0].tolist())
            ]
            for sample in samples
        ]
        positions = [positions_of(model, sample, placeholder) for sample in samples]
        batch = batch_of(family, samples, labels, positions)
        if family.startswith("gemma3"):
            Images.images_per_sample = [
                int((s["input_ids"] == placeholder).sum()) // 256 for s in samples
            ]
        elif family in ("aya_vision", "idefics3", "internvl3", "llama4", "qianfan_ocr", "smolvlm"):
            Images.images_per_sample = [len(crops_of(family, s)[0]) for s in samples]
        elif family == "minicpmv4_6":
            Images.images_per_sample = [len(s.get("target_sizes", ())) for s in samples]
        else:
            Images.images_per_sample = [1, 0, 2]
        adapter = Family(model.config, dummy_image="drop")
        counts = [sum(label != -100 for label in own[1:]) for own in labels]
        with torch.no_grad():
            wanted = []
            for sample, own in zip(samples, labels):
                extra = {}
                if family == "llava_onevision" and "pixel_values" in sample:
                    extra["batch_num_images"] = torch.tensor([len(sample["image_sizes"])])
                    sample.pop("batch_num_images", None)
                wanted.append(float(model(**sample, **extra, labels=torch.tensor([own])).loss))
            unpacked = [float(model(**one).loss) for one in adapter.unpacked(batch)]
            one_call = [float(model(**adapter.padded(batch)).loss)]
            if family in NOT_PACKED:
                with self.assertRaisesRegex(Unimplemented, NOT_PACKED[family]):
                    adapter.packed(batch)
            else:
                one_call.append(float(model(**adapter.packed(batch)).loss))
        for got, want in zip(unpacked, wanted):
            self.assertAlmostEqual(got, want, delta=abs(want) * 1e-6)
        mean = sum(loss * n for loss, n in zip(wanted, counts)) / sum(counts)
        for loss in one_call:
            self.assertAlmostEqual(loss, mean, delta=abs(mean) * 2e-6)
        # The images matter, so that equal losses show something.
        white = dict(samples[0], pixel_values=torch.full_like(samples[0]["pixel_values"], 4))
        with torch.no_grad():
            other = float(model(**white, labels=torch.tensor([labels[0]])).loss)
        self.assertGreater(abs(other - wanted[0]), abs(wanted[0]) * 1e-5)


def _add(family):
    setattr(LossTest, "test_" + family, lambda self: self.check(family))


for _family in (
    "aya_vision", "ernie4_5_vl", "gemma3", "gemma3_pan_and_scan", "gemma4", "gemma4_blocks", "glm4v",
    "hunyuan_vl", "idefics3", "internvl3", "kimi_k25", "llama4", "llava1_5", "llava1_5_pad",
    "llava_next", "llava_onevision", "minicpmv4_6", "pixtral", "qianfan_ocr", "smolvlm",
    "vipllava",
):  # fmt: skip
    _add(_family)


class RefusalTest(unittest.TestCase):
    class Config:
        model_type = "llava"
        image_token_id = 5

    def test_model(self):
        self.Config.model_type = "bert"
        with self.assertRaisesRegex(
            InvalidArgument, "model_type: found bert, wanted one of aya_vision, ernie4_5_vl_moe"
        ):
            Family(self.Config())
        self.Config.model_type = "llava"

    def test_qwens_models_take_no_other_form(self):
        tiles = {
            "pixel_values": numpy.zeros((1, 3, 4, 4)), "image_grid_thw": numpy.ones((1, 3), int),
            "imgs_sizes": numpy.full((1, 2), 4), "input_ids": numpy.array([[1]]),
            "labels": numpy.array([[1]]), "position_ids": numpy.array([[0]]),
            "cu_seqlens": numpy.array([0, 1]), "cu_seqlens_padded": numpy.array([0, 1]),
            "max_seqlen": 1,
        }  # fmt: skip
        for call in (
            lambda: huggingface.packed(tiles), lambda: huggingface.padded(tiles),
            lambda: huggingface.unpacked(tiles, [1]),
        ):  # fmt: skip
            with self.assertRaisesRegex(InvalidArgument, "takes patches in merge order"):
                call()

    def test_form(self):
        batch = Images(
            input_ids=numpy.array([[1, 2]]), labels=numpy.array([[2, -100]]),
            position_ids=numpy.array([[0, 1]]), cu_seqlens=numpy.array([0, 2]),
            cu_seqlens_padded=numpy.array([0, 2]), pixel_values=numpy.zeros((8, 12)),
            image_grid_thw=numpy.array([[1, 2, 2], [1, 2, 2]]), crops_per_image=numpy.array([1, 1]),
        )  # fmt: skip
        with self.assertRaisesRegex(InvalidArgument, "dummy_image: found 'refuse'; wanted .zero"):
            Family(self.Config(), dummy_image="refuse")
        with self.assertRaisesRegex(
            FailedPrecondition, "dummy image in a batch without image_token"
        ):
            Family(self.Config()).packed(batch)
        with self.assertRaisesRegex(
            InvalidArgument, r"found patches in merge order.* \[8, 12\]; llava takes crops"
        ):
            Family(self.Config(), dummy_image="drop").packed(batch)
        # Both have the same shape.
        self.Config.model_type = "kimi_k25"
        with self.assertRaisesRegex(InvalidArgument, "found patches in merge order.* row by row"):
            Family(self.Config(), dummy_image="drop").packed(batch)
        self.Config.model_type = "glm4v"
        batch["imgs_sizes"] = numpy.array([[4, 4], [4, 4]])
        with self.assertRaisesRegex(InvalidArgument, "found patches row by row.* in merge order"):
            Family(self.Config(), dummy_image="drop").packed(batch)
        self.Config.model_type = "llava"


if __name__ == "__main__":
    unittest.main()
