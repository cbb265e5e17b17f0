"""The adapter for vision encoders: outputs of small random models of transformers, fed
by the adapter, beside those of single images.

The batches are made here, as a loader has them.
"""

import os
import sys
import unittest

import numpy

from ballast.adapters import huggingface_encoders
from ballast.errors import InvalidArgument

SIZES = [(320, 200), (200, 330), (96, 96)]
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


class Config:
    model_type = "bert"


class EncodersTest(unittest.TestCase):
    def test_siglip2_as_its_processor(self):
        import torch
        import transformers

        here = os.path.dirname(os.path.abspath(__file__))
        sys.path.insert(0, os.path.join(here, "..", "..", "server", "media", "image_plan"))
        from image_processors import drawn, image_processor

        torch.manual_seed(3)
        model = transformers.Siglip2VisionModel(
            transformers.Siglip2VisionConfig(
                **SMALL, intermediate_size=32, patch_size=16, num_patches=256
            )
        ).eval()
        made = image_processor("siglip2", "torchvision")(
            [drawn(*size) for size in SIZES], return_tensors="pt"
        )
        shapes = made["spatial_shapes"].long()
        batch = {
            "pixel_values": made["pixel_values"],
            # A loader's grids, sizes and mask, by their definitions.
            "image_grid_thw": torch.cat([torch.ones_like(shapes[:, :1]), shapes], 1),
            "imgs_sizes": shapes * 16,
            "spatial_shapes": shapes,
            "pixel_attention_mask": torch.arange(256)[None] < shapes.prod(1)[:, None],
        }
        with torch.no_grad():
            got = model(**huggingface_encoders.inputs(batch, model.config)).pooler_output
            for i, size in enumerate(SIZES):
                alone = image_processor("siglip2", "torchvision")(drawn(*size), return_tensors="pt")
                want = model(**alone).pooler_output[0]
                torch.testing.assert_close(got[i], want, rtol=1e-5, atol=1e-6)

    def test_radio_as_single_images(self):
        import torch
        import transformers

        torch.manual_seed(3)
        model = transformers.RadioModel(
            transformers.RadioConfig(
                **SMALL,
                mlp_ratio=2.0,
                image_size=64,
                max_img_size=128,
                num_cls_tokens=1,
                num_registers=1,
                summary_idxs=[0],
            )
        ).eval()
        images = [torch.rand(1, 3, h, w) for h, w in ((32, 48), (64, 16), (16, 16))]
        patches, grids = [], []
        for image in images:
            height, width = (side // 16 for side in image.shape[2:])
            cut = image[0].unfold(1, 16, 16).unfold(2, 16, 16)  # [3, h, w, 16, 16]
            patches.append(cut.permute(1, 2, 0, 3, 4).reshape(height * width, -1))
            grids.append([1, height, width])
        batch = {
            "pixel_values": torch.cat(patches),
            "image_grid_thw": torch.tensor(grids),
            "imgs_sizes": torch.tensor([image.shape[2:] for image in images]),
        }
        with torch.no_grad():
            made = model(**huggingface_encoders.inputs(batch, model.config))
            wanted = [model(image) for image in images]
        torch.testing.assert_close(
            made.summary.reshape(3, -1),
            torch.cat([w.summary for w in wanted]).reshape(3, -1),
            rtol=1e-5,
            atol=1e-5,
        )
        features = torch.cat([w.features[0] for w in wanted])
        torch.testing.assert_close(
            made.features.reshape(features.shape), features, rtol=1e-5, atol=1e-5
        )


class RefusalTest(unittest.TestCase):
    def test_encoder(self):
        with self.assertRaisesRegex(InvalidArgument, "found bert, wanted one of radio, siglip2"):
            huggingface_encoders.inputs({}, Config())

    def test_form(self):
        radio = type("Radio", (), {"model_type": "radio"})
        merged = {"pixel_values": numpy.zeros((4, 12))}
        with self.assertRaisesRegex(InvalidArgument, "found patches in merge order.* row by row"):
            huggingface_encoders.inputs(merged, radio)
        self.assertEqual(huggingface_encoders.inputs({}, radio), {})


if __name__ == "__main__":
    unittest.main()
