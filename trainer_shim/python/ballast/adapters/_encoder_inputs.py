"""A batch's images and videos as arguments of encoders, in every form of pixels."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ..errors import FailedPrecondition, InvalidArgument
from ._arrays import concatenate, host_values
from ._images import dummy_patches
from ._takes import check
from ._family_forms import MERGED, PADDED, RASTER, TILES, form_of

#: Arguments of an encoder: the key of a batch for the name of each, or a function from the
#: images, a mapping with a batch's keys, to the arguments.
Arguments = Union[Mapping[str, str], Callable[[Mapping[str, Any]], Dict[str, Any]]]
#: The encoders of a modality, by name; a name alone takes the arguments of the batch's form.
Encoders = Union[str, Sequence[str], Mapping[str, Optional[Arguments]]]

#: The arguments of an encoder that names none, by the form of pixels.
_ARGUMENTS: Dict[str, Arguments] = {
    MERGED: {"hidden_states": "pixel_values", "grid_thw": "image_grid_thw"},
    TILES: {"pixel_values": "pixel_values"},
    RASTER: {"pixel_values": "pixel_values", "imgs_sizes": "imgs_sizes"},
    PADDED: {key: key for key in ("pixel_values", "pixel_attention_mask", "spatial_shapes")},
}
#: Tensors with an entry for each image, each crop, and each crop after a 0.
_OF_IMAGES = ("crops_per_image", "image_sizes")
_OF_CROPS = ("image_grid_thw", "imgs_sizes", "spatial_shapes", "pixel_attention_mask")


def by_name(encoders: Encoders) -> Dict[str, Optional[Arguments]]:
    """Arguments of each encoder, None for the batch's form."""
    if isinstance(encoders, str):
        return {encoders: None}
    if isinstance(encoders, Mapping):
        return dict(encoders)
    return {name: None for name in encoders}


def arguments_of(found: Mapping[str, Any], arguments: Optional[Arguments]) -> Dict[str, Any]:
    """The arguments for images. Raises InvalidArgument for a key that the batch lacks."""
    if arguments is None:
        arguments = _ARGUMENTS[form_of(found)]
    if callable(arguments):
        return arguments(found)
    for name, key in arguments.items():
        if key not in found:
            raise InvalidArgument(
                "encoder's argument %s: found no %r in the batch, whose pixels are %s; it has %s"
                % (name, key, form_of(found), ", ".join(sorted(found)))
            )
    return {name: found[key] for name, key in arguments.items()}


def clip_arguments(clips: Mapping[str, Any], arguments: Optional[Arguments]) -> Dict[str, Any]:
    """The arguments for clips, of the keys that `clips_of` gives. Raises InvalidArgument for
    another key."""
    if arguments is None:
        arguments = {key: key for key in ("input_features", "seq_lengths")}
    if callable(arguments):
        return arguments(clips)
    for name, key in arguments.items():
        if key not in clips:
            raise InvalidArgument(
                "audio encoder's argument %s: found no %r of the batch's clips; they have %s"
                % (name, key, ", ".join(sorted(clips)))
            )
    return {name: clips[key] for name, key in arguments.items()}


def clips_of(
    batch: Mapping[str, Any], split: bool = False, *, dummy: bool = False
) -> Dict[str, Any]:
    """`huggingface_audio.features` of a batch, and `seq_lengths` int64 [N], the frames of each
    clip that count; empty without clips. A dummy clip stays if `dummy`."""
    from .huggingface_audio import features

    if batch.get("input_features") is None:
        return {}
    found = features(batch, split=split, dummy=dummy)
    if found:
        found["seq_lengths"] = found["feature_attention_mask"].sum(-1)
    return found


def radio(images: Mapping[str, Any]) -> Dict[str, Any]:
    """Arguments of the RADIO encoder of Megatron-LM's `examples/mimo`.

    With `model.image_form: raster`, its dynamic resolution: `x` [1, P, V], `imgs_sizes` int32
    [crops, 2] and `packed_seq_params` (Megatron-Core's PackedSeqParams, a sequence for each
    crop). With `tiles`, its fixed one: `x` [crops, 3, H, W]. The encoder is made without
    class tokens (`--disable-vision-class-token`). Raises InvalidArgument for other forms.
    """
    form, pixels = form_of(images), images["pixel_values"]
    if form == TILES:
        return {"x": pixels}
    if form != RASTER:
        raise InvalidArgument(
            "pixel_values: found %s; RADIO takes %s or %s: set model.image_form"
            % (form, RASTER, TILES)
        )
    module = importlib.import_module("megatron.core.packed_seq_params")
    bounds, longest = images["vision_cu_seqlens"], int(images["vision_max_seqlen"])
    params = module.PackedSeqParams(
        qkv_format="thd", cu_seqlens_q=bounds, cu_seqlens_kv=bounds,
        max_seqlen_q=longest, max_seqlen_kv=longest,
    )  # fmt: skip
    sizes = images["imgs_sizes"]
    sizes = sizes.int() if hasattr(sizes, "int") else sizes.astype("int32")
    return {"x": pixels[None], "imgs_sizes": sizes, "packed_seq_params": params}


def images_of(batch: Mapping[str, Any], *, dummy: bool) -> Optional[Dict[str, Any]]:
    """The tensors of a batch's images, with the dummy image last if `dummy`, else without
    it; None without images."""
    keys = (*_OF_IMAGES, *_OF_CROPS, "pixel_values", "vision_cu_seqlens", "vision_max_seqlen")
    found = {key: batch[key] for key in keys if batch.get(key) is not None}
    if found.get("pixel_values") is None or found["pixel_values"].shape[0] == 0:
        return None
    patches = dummy_patches(batch)
    if dummy or not patches:
        return found
    if found["image_grid_thw"].shape[0] == 1:
        return None
    packed = form_of(found) in (MERGED, RASTER)
    found["pixel_values"] = found["pixel_values"][: -patches if packed else -1]
    for key in (*_OF_CROPS, "vision_cu_seqlens"):
        if key in found:
            found[key] = found[key][:-1]
    if "crops_per_image" in found:
        real = found["crops_per_image"].shape[0] - 1
        for key in _OF_IMAGES:
            if key in found:
                found[key] = found[key][:real]
    return found


def takes_videos(model: Mapping[str, Any]) -> bool:
    """Whether `Job.model`, whose fields are all there, has videos."""
    return any(value not in ("", "unspecified", 0) for value in (model.get("video") or {}).values())


def media_tokens(model: Mapping[str, Any]) -> Optional[Tuple[int, int]]:
    """The tokens of images and videos of `Job.model`; None if it has no videos."""
    image, video = (int(model["token_ids"].get(key) or 0) for key in ("image", "video"))
    return (image, video) if video and takes_videos(model) else None


def with_videos(
    images: Optional[Dict[str, Any]],
    batch: Mapping[str, Any],
    merge: int,
    tokens: Tuple[int, int],
    split: bool = False,
) -> Optional[Dict[str, Any]]:
    """The images and videos of a batch in the order of the text, as one encoder takes them:
    patches in merge order, and grids. A dummy image stays last.

    A rank without text knows the order of samples alone: FailedPrecondition for a sample with
    images and videos.

    Args:
        images: as `images_of` returns them.
        merge: `model.merge` of the job.
        tokens: ids of the placeholders of images and videos.
        split: the rows go by the plan of balance.placement `split`: of a sample with both,
            the images first (`exchange_embeddings`).
    """
    video_grids: Any = batch.get("video_grid_thw")
    if video_grids is None or video_grids.shape[0] == 0:
        return images
    if form_of(batch) != MERGED or len(batch["pixel_values_videos"].shape) != 2:
        raise InvalidArgument(
            "pixel_values_videos: found videos of shape %s; one encoder takes images and videos "
            "of %s: take ballast.adapters.huggingface_families, or leave out the sources with "
            "videos" % (list(batch["pixel_values_videos"].shape), MERGED)
        )
    pixels = [batch["pixel_values_videos"]]
    grids = [host_values(batch, "video_grid_thw").tolist()]
    rows = [video_grids]
    if images is not None:
        pixels.insert(0, images["pixel_values"])
        own = images["image_grid_thw"]
        grids.insert(0, host_values(batch, "image_grid_thw").tolist()[: len(own)])
        rows.insert(0, own)
    else:
        grids.insert(0, [])
    dummy = bool(images is not None and dummy_patches(batch)
                 and len(grids[0]) == batch["image_grid_thw"].shape[0])  # fmt: skip
    order = _order(batch, grids, merge, tokens, dummy, split)
    begins = {0: 0, 1: sum(map(_patches, grids[0]))}
    both, listed = concatenate(pixels, 0), concatenate(rows, 0)
    places, parts, chosen = {0: 0, 1: 0}, [], []
    for kind in order:
        number, size = places[kind], _patches(grids[kind][places[kind]])
        parts.append(both[begins[kind] : begins[kind] + size])
        row = number + kind * len(grids[0])
        chosen.append(listed[row : row + 1])
        begins[kind] += size
        places[kind] += 1
    return {"pixel_values": concatenate(parts, 0), "image_grid_thw": concatenate(chosen, 0)}


def _patches(grid: Sequence[int]) -> int:
    return int(grid[0] * grid[1] * grid[2])


def _order(
    batch: Mapping[str, Any],
    grids: List[List[List[int]]],
    merge: int,
    tokens: Tuple[int, int],
    dummy: bool,
    split: bool,
) -> List[int]:
    """0 for an image, 1 for a video, in the order of the text; a dummy image last. `split`:
    of each sample the images first."""
    import numpy

    images = len(grids[0]) - dummy
    order: List[int] = []
    if split or batch.get("input_ids") is None:
        counts = zip(batch.images_per_sample, batch.videos_per_sample)  # type: ignore[attr-defined]
        for number, (own, videos) in enumerate(counts):
            if own and videos and not split:
                raise FailedPrecondition(
                    "sample %d of the batch: found %d images and %d videos; a rank without text "
                    "does not know their order in it: train with topology.colocated: true, or "
                    "leave out such samples" % (number, own, videos)
                )
            order += [0] * own + [1] * videos
    else:
        check(batch, "order of images and videos")
        ids = host_values(batch, "input_ids").reshape(-1)
        kinds = (ids[numpy.isin(ids, tokens)] == tokens[1]).astype(int).tolist()
        taken, place = [0, 0], 0
        while place < len(kinds):
            kind = kinds[place]
            if taken[kind] >= (len(grids[1]) if kind else images):
                break  # counted below
            count = _patches(grids[kind][taken[kind]]) // merge**2
            if any(other != kind for other in kinds[place : place + count]):
                raise InvalidArgument(
                    "input_ids: found %d placeholders of one kind in a row; image or video %d "
                    "of the batch has %d" % (kinds[place:].index(1 - kind), len(order), count)
                )
            order.append(kind)
            taken[kind] += 1
            place += count
        if place < len(kinds):
            order.append(kinds[place])
    if [order.count(0), order.count(1)] != [images, len(grids[1])]:
        raise InvalidArgument(
            "found placeholders of %d images and %d videos, but pixels of %d and %d: the "
            "text is of another model" % (order.count(0), order.count(1), images, len(grids[1]))
        )
    return order + [0] * dummy
