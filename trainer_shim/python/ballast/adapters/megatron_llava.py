"""Placeholder for an adapter to Megatron-Core's LLaVAModel."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from ..errors import Unimplemented

#: Arguments of LLaVAModel.forward that an adapter has to fill. With tiles: `images`
#: [tiles, 3, H, W] and `num_image_tiles`. With RADIO at dynamic resolution: `images`
#: [1, patches, 3 * patch * patch] in raster order, `imgs_sizes` [images, 2] in pixels, and
#: `vision_packed_seq_params` with the patches of each image.
ARGUMENTS = (
    "images", "input_ids", "position_ids", "attention_mask", "labels", "loss_mask",
    "num_image_tiles", "packed_seq_params", "vision_packed_seq_params", "imgs_sizes",
)  # fmt: skip


def forward_inputs(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """Raises Unimplemented: LLaVAModel takes one image token per image, which it
    expands itself, and images as tiles [tiles, 3, H, W], or as patches in rows with
    `imgs_sizes`. A batch has one token for each merged patch, and patches in merge
    order with two frames."""
    raise Unimplemented(
        "LLaVAModel takes tiles or rows of patches; Ballast delivers the patches of the Qwen "
        "family: train such a model with MimoModel (ballast.adapters.megatron_bridge)"
    )
