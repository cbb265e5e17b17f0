"""The forms in which Hugging Face's models of crops take their images."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from ..errors import InvalidArgument
from ._arrays import from_host, full, host_values, transposed, where

TILES = "crops, [n, 3, height, width] (model.image_form: tiles)"
MERGED = "patches in merge order, [n, values] (model.image_form: merge_order)"
RASTER = "patches row by row, [n, values] (model.image_form: raster)"
PADDED = "padded patches, [n, max_patches, values] (model.image_form: padded)"
#: `images.layout` of a model's file -> the form of `pixel_values` that the model takes.
_FORMS = {
    "LAYOUT_CROPS": TILES,
    "LAYOUT_MERGE_ORDER": MERGED,
    "LAYOUT_RASTER_ORDER": RASTER,
    "LAYOUT_KIMI": RASTER,
    "LAYOUT_STRIPS": RASTER,
    "LAYOUT_RASTER_PIXELS": PADDED,
    "LAYOUT_RASTER_BATCH": PADDED,
}


def form_of(batch: Mapping[str, Any]) -> str:
    """The form of a batch's pixels. Merge order alone lists no sizes of crops."""
    dimensions = len(batch["pixel_values"].shape)
    if dimensions == 4:
        return TILES
    if dimensions == 3:
        return PADDED
    return MERGED if batch.get("imgs_sizes") is None else RASTER


def required_form(batch: Mapping[str, Any], layout: str, model_type: str) -> str:
    """The form of this layout. Raises InvalidArgument if the batch's pixels are not in it."""
    found, wanted = form_of(batch), _FORMS[layout]
    if found != wanted:
        raise InvalidArgument(
            "pixel_values: found %s, shape %s; %s takes %s: serve the family of the model"
            % (found, list(batch["pixel_values"].shape), model_type, wanted)
        )
    return wanted


def _square(patches: Any) -> Any:
    """[n, 3*p*p] -> [n, 3, p, p]."""
    side = round((patches.shape[1] // 3) ** 0.5)
    return patches.reshape(patches.shape[0], 3, side, side)


def raster_inputs(
    batch: Mapping[str, Any], patches: Any, crops: slice, layout: str
) -> Dict[str, Any]:
    """Arguments for `patches`, the patches of `crops`, row by row."""
    grids = batch["image_grid_thw"][crops]
    if layout == "LAYOUT_RASTER_ORDER":
        return {"pixel_values": patches, "image_grid_thw": grids}
    squares = _square(patches)
    if layout == "LAYOUT_KIMI":
        return {"pixel_values": squares, "image_grid_thw": grids}
    # LAYOUT_STRIPS: all patches side by side, one after the other.
    strip = transposed(squares, (1, 2, 0, 3)).reshape(1, 3, squares.shape[2], -1)
    return {"pixel_values": strip, "target_sizes": grids[:, 1:]}


def padded_inputs(batch: Mapping[str, Any], crops: slice) -> Dict[str, Any]:
    """Arguments of Gemma 4: patches, and the column and row of each; -1 for padding."""
    import numpy

    pixels: Any = batch["pixel_values"][crops]
    grids = host_values(batch, "image_grid_thw")[crops].tolist()
    places = numpy.full((len(grids), pixels.shape[1], 2), -1, numpy.int64)
    for place, (_, height, width) in zip(places, grids):
        rows, columns = numpy.divmod(numpy.arange(height * width), width)
        place[: height * width] = numpy.stack([columns, rows], 1)
    return {"pixel_values": pixels, "image_position_ids": from_host(places, pixels)}


def marked(ids: Any, tokens: Any) -> Any:
    """1 where an id is one of `tokens`, else 0."""
    zeros = full(ids, ids.shape, 0)
    for token in tokens:
        zeros = where(ids != token, zeros, 1)
    return zeros
