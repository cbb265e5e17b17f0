"""Placeholder for an adapter to Megatron-Core's LLaVAModel."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from ..errors import Unimplemented


def forward_inputs(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """Raises Unimplemented: LLaVAModel takes one image token per image, which it
    expands itself, and images as tiles [tiles, 3, H, W], or as patches in rows with
    `imgs_sizes`. A batch has one token for each merged patch, and patches in merge
    order with two frames."""
    raise Unimplemented(
        "LLaVAModel takes tiles or rows of patches; Ballast delivers the patches of the Qwen "
        "family: train such a model with MimoModel (ballast.adapters.megatron_bridge)"
    )
