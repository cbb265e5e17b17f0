"""Arguments of `forward` of Megatron-Core's LLaVAModel, for families of tiles."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from ..errors import InvalidArgument
from ._arrays import from_host, host_values, is_padded
from ._takes import check
from . import padded
from .megatron_core import packed_seq_params

#: Arguments of LLaVAModel.forward that `forward_inputs` fills. RADIO's at dynamic
#: resolution (`imgs_sizes`, `vision_packed_seq_params`) are not among them.
ARGUMENTS = (
    "images", "input_ids", "position_ids", "attention_mask", "labels", "loss_mask",
    "num_image_tiles", "packed_seq_params",
)  # fmt: skip


def forward_inputs(
    batch: Mapping[str, Any],
    *,
    image_token: int,
    tokens_per_tile: int,
    image_token_index: int = -200,
    cls: Optional[Callable[..., Any]] = None,
) -> Dict[str, Any]:
    """Arguments for one call over all samples of a batch in one row.

        inputs = ballast.adapters.megatron_llava.forward_inputs(
            batch, image_token=loader.job["model"]["token_ids"]["image"],
            tokens_per_tile=model.img_seq_len, cls=PackedSeqParams)
        output, loss_mask = model(**inputs)

    LLaVAModel takes one token for each image and puts the embeddings of its tiles in its
    place. So each run of image placeholders becomes one `image_token_index`, with the
    label of its last token, and `num_image_tiles` says how many tiles it had; the row
    that the model makes of it has the batch's length again, which `packed_seq_params`
    describes. Families that write marks between tiles (Idefics 3, Llama 4) get a run for
    each. The model never supervises the token right after an image.

    Keys: `images` [tiles, 3, H, W] of which none may be a dummy image's, `input_ids`, `labels`,
    `loss_mask`, `position_ids` [1, S], `num_image_tiles` int32 [runs], `attention_mask`
    None and `packed_seq_params`. A padded batch (`packing.mode: padded`), or
    `padded_inputs` of a packed one, has rows [B, S] and no `packed_seq_params`.

    Reads ids in host memory, so it waits for a GPU. Raises InvalidArgument for pixels
    that are not tiles, and for runs that are not whole tiles (LLaVA-NeXT's, which drops
    padding), naming the run.

    Args:
        image_token: the placeholder's id.
        tokens_per_tile: `img_seq_len` of the model, after its pixel shuffle and without
            class tokens.
        cls: megatron.core's PackedSeqParams. None: a dictionary of its fields.
    """
    if is_padded(batch):
        return padded_inputs(
            batch, image_token=image_token, tokens_per_tile=tokens_per_tile,
            image_token_index=image_token_index,
        )  # fmt: skip
    check(batch, "megatron_llava.forward_inputs")
    fields = {key: batch[key] for key in _FIELDS}
    inputs = _collapsed(batch, fields, image_token, tokens_per_tile, image_token_index, 0, True)
    inputs["packed_seq_params"] = packed_seq_params(batch, cls)
    return inputs


def padded_inputs(
    batch: Mapping[str, Any],
    *,
    image_token: int,
    tokens_per_tile: int,
    image_token_index: int = -200,
    pad: int = 0,
) -> Dict[str, Any]:
    """`forward_inputs` with a row for each sample: [B, S], S the length of the row with most
    tokens once images are one token each. Shorter rows end with `pad`, unsupervised; under
    causal attention no token of a sample sees it."""
    rows = padded.rows(batch, pad=pad)
    fields = {key: rows[key] for key in _FIELDS}
    kept = host_values(rows, "attention_mask")
    inputs = _collapsed(batch, fields, image_token, tokens_per_tile, image_token_index, pad, kept)
    inputs["packed_seq_params"] = None
    return inputs


_FIELDS = ("input_ids", "labels", "loss_mask", "position_ids")


def _collapsed(
    batch: Mapping[str, Any],
    fields: Dict[str, Any],
    image_token: int,
    tokens_per_tile: int,
    index: int,
    pad: int,
    kept: Any,
) -> Dict[str, Any]:
    import numpy

    if len(fields["position_ids"].shape) == 3:
        raise InvalidArgument(
            "position_ids: found %d axes; LLaVAModel numbers its tokens on one: serve a family "
            "of tiles" % fields["position_ids"].shape[0]
        )
    ids = host_values(fields, "input_ids")
    keep, runs = _runs(ids == image_token)
    keep = keep & kept
    images, tiles = _tiles(batch, runs, tokens_per_tile)
    counts = keep.sum(axis=1)
    place = numpy.zeros((len(ids), int(counts.max(initial=0))), numpy.int64)
    for row, count in enumerate(counts):
        place[row, :count] = numpy.flatnonzero(keep[row])
    real = numpy.arange(place.shape[1])[None] < counts[:, None]
    like = fields["input_ids"]
    rows = from_host(numpy.arange(len(ids))[:, None], like)
    taken = from_host(place, like)
    inputs: Dict[str, Any] = {key: value[rows, taken] for key, value in fields.items()}
    if not real.all():
        missing = from_host(~real, like)
        fills = {"input_ids": pad, "labels": -100, "loss_mask": 0, "position_ids": 0}
        for key, fill in fills.items():
            inputs[key][missing] = fill
    inputs["input_ids"][inputs["input_ids"] == image_token] = index
    inputs["images"] = images
    inputs["num_image_tiles"] = from_host(tiles, like)
    inputs["attention_mask"] = None
    return inputs


def _runs(is_image: Any) -> Tuple[Any, Any]:
    """Which tokens stay, the last of each run of placeholders and all others, and the
    lengths of the runs in order."""
    import numpy

    none = numpy.zeros((len(is_image), 1), bool)
    after = numpy.concatenate([is_image[:, 1:], none], 1)
    before = numpy.concatenate([none, is_image[:, :-1]], 1)
    firsts = numpy.flatnonzero(is_image & ~before)
    lasts = numpy.flatnonzero(is_image & ~after)
    return ~is_image | ~after, lasts - firsts + 1


def _tiles(batch: Mapping[str, Any], runs: Any, tokens_per_tile: int) -> Tuple[Any, Any]:
    """The tiles of a batch, and their number in each run."""
    import numpy

    check(batch, "megatron_llava.forward_inputs", "split placement", "dummies")
    pixels: Any = batch.get("pixel_values")
    if pixels is None or len(pixels.shape) != 4:
        raise InvalidArgument(
            "pixel_values: found %s; LLaVAModel takes tiles, [n, 3, height, width]: give the "
            "loader both modules, and the model a family of tiles (model.image_form: tiles)"
            % ("none" if pixels is None else "shape %s" % list(pixels.shape))
        )
    for number, length in enumerate(runs.tolist()):
        if length % tokens_per_tile:
            raise InvalidArgument(
                "run %d of image placeholders: found %d, wanted a multiple of tokens_per_tile, "
                "%d: the model's img_seq_len and the family must agree"
                % (number, length, tokens_per_tile)
            )
    tiles = runs // tokens_per_tile
    count = pixels.shape[0]
    if tiles.sum() != count:
        raise InvalidArgument(
            "image placeholders of %d tiles for %d tiles: tokens_per_tile is %d; wanted the "
            "model's img_seq_len" % (tiles.sum(), count, tokens_per_tile)
        )
    return pixels, tiles.astype(numpy.int32)
