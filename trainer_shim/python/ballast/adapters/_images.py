"""The images of a batch in patches, and their grids."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Tuple

from ..errors import InvalidArgument
from ._arrays import from_host, host_values
from ._takes import check

Images = Tuple[Any, Any]  # [P, V] patches and [images, 3] grids


def images(batch: Mapping[str, Any]) -> Optional[Images]:
    """Patches and grids, the dummy image's last; None without images."""
    check(batch, "images in merge order")
    pixels: Any = batch.get("pixel_values")
    if pixels is None or pixels.shape[0] == 0:
        return None
    return pixels, batch["image_grid_thw"]


def dummy_patches(batch: Mapping[str, Any]) -> int:
    """Number of patches of the image that belongs to no sample; 0 without one."""
    if not getattr(batch, "dummy_image", False):
        return 0
    t, h, w = host_values(batch, "image_grid_thw").tolist()[-1]
    return int(t * h * w)


def real_images(batch: Mapping[str, Any]) -> Optional[Images]:
    """`images` without the dummy image."""
    found, dummy = images(batch), dummy_patches(batch)
    if found is None or not dummy:
        return found
    pixels, grid = found
    if pixels.shape[0] == dummy:
        return None
    return pixels[:-dummy], grid[:-1]


def grids_of_positions(batch: Mapping[str, Any], image_token: int, merge: int) -> Any:
    """[images, 3] grids of the images in a batch's tokens, int64; None without images.

    A rank without pixels can derive the sizes from the rotary positions: an image is a
    run of `image_token` whose heights and widths count from its corner. Reads ids and
    positions in host memory, so it waits for a GPU.
    """
    import numpy

    ids, positions = batch.get("input_ids"), batch.get("position_ids")
    if ids is None or positions is None or len(positions.shape) != 3:
        raise InvalidArgument(
            "the batch lacks input_ids or 3-axis position_ids: give the loader "
            "needs_input_ids=True, and the configuration model.position_axes: 3"
        )
    check(batch, "images told from positions")
    totals = getattr(batch, "step_totals", None)
    if totals is not None and totals.videos:
        raise InvalidArgument(
            "found a step with %d videos; only still images can be told from positions, and the "
            "model would compute others here than on the first stage: train without pipeline "
            "stages, or serve images alone" % totals.videos
        )
    rows = host_values(batch, "input_ids") == image_token
    positions = host_values(batch, "position_ids")
    grids = []
    for number, row in enumerate(rows.astype(numpy.int8)):
        edges = numpy.flatnonzero(numpy.diff(numpy.concatenate([[0], row, [0]])))
        axes = positions[:, number]
        for begin, end in edges.reshape(-1, 2).tolist():
            t, h, w = (int(axis[begin:end].max() - axis[begin:end].min()) + 1 for axis in axes)
            if t != 1 or h * w != end - begin:
                raise InvalidArgument(
                    "row %d, tokens %d to %d: found %d image tokens whose positions span %d x %d "
                    "x %d; only still images can be told from positions: give this rank the "
                    "vision module, too, or serve images alone"
                    % (number, begin, end, end - begin, t, h, w)
                )
            grids.append((1, h * merge, w * merge))
    if not grids:
        return None
    return from_host(numpy.array(grids, numpy.int64), ids)
