"""Arguments of `forward` of Hugging Face's vision encoders that take patches."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from ..errors import InvalidArgument
from ._family_forms import PADDED, RASTER, form_of

#: model_type of a configuration -> the form of `pixel_values` that the encoder takes.
_FORMS = {"radio": RASTER, "siglip2": PADDED, "siglip2_vision_model": PADDED}


def inputs(batch: Mapping[str, Any], config: Any) -> Dict[str, Any]:
    """Arguments for one call over all crops of a batch, a dummy image's last.

        features = encoder(**ballast.adapters.huggingface_encoders.inputs(batch, encoder.config))

    SigLIP 2 (NaFlex) takes `pixel_values` [crops, max_patches, values] with
    `pixel_attention_mask` and `spatial_shapes`; C-RADIO `pixel_values` [patches, values]
    row by row with `image_grid_hw` [crops, 2]. C-RADIO normalises by itself: give it
    model.mean 0 and model.std 1. Empty for a rank without images.

    As of transformers 5.23. Raises InvalidArgument for another encoder, and for a batch
    whose pixels are in another form.

    Args:
        config: the encoder's configuration, of which `model_type` is read.
    """
    wanted = _FORMS.get(config.model_type)
    if wanted is None:
        raise InvalidArgument(
            "model_type: found %s, wanted one of %s"
            % (config.model_type, ", ".join(sorted(_FORMS)))
        )
    if batch.get("pixel_values") is None:
        return {}
    found = form_of(batch)
    if found != wanted:
        raise InvalidArgument(
            "pixel_values: found %s, shape %s; %s takes %s"
            % (found, list(batch["pixel_values"].shape), config.model_type, wanted)
        )
    if wanted == RASTER:
        return {
            "pixel_values": batch["pixel_values"],
            "image_grid_hw": batch["image_grid_thw"][:, 1:],
        }
    return {key: batch[key] for key in ("pixel_values", "pixel_attention_mask", "spatial_shapes")}
