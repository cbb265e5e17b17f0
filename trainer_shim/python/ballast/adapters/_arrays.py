"""Arrays of NumPy and torch alike, the rows of a batch, and its images."""

from __future__ import annotations

import sys
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from ..errors import FailedPrecondition, InvalidArgument
from ..tensor import check_same_samples


def is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def concatenate(arrays: Sequence[Any], axis: int) -> Any:
    if is_torch(arrays[0]):
        import torch

        return torch.cat(list(arrays), dim=axis)
    import numpy

    return numpy.concatenate(list(arrays), axis=axis)


def full(like: Any, shape: Sequence[int], value: int) -> Any:
    """An array of the same library and on the same device as `like`."""
    if is_torch(like):
        return like.new_full(tuple(shape), value)
    import numpy

    return numpy.full(tuple(shape), value, like.dtype)


def where(condition: Any, array: Any, other: int) -> Any:
    """`array` where the condition holds, else `other`."""
    if is_torch(array):
        return array.masked_fill(~condition, other)
    import numpy

    return numpy.where(condition, array, numpy.asarray(other, array.dtype))


def transposed(array: Any, axes: Sequence[int]) -> Any:
    """The array with its axes in this order."""
    return array.permute(*axes) if is_torch(array) else array.transpose(axes)


def from_host(host: Any, like: Any) -> Any:
    """Converts a NumPy array to the library and device of `like`. A copy to a GPU goes
    through pinned memory and does not wait."""
    if is_torch(like):
        import torch

        tensor = torch.from_numpy(host)
        if like.is_cuda:
            return tensor.pin_memory().to(like.device, non_blocking=True)
        return tensor
    return host


def host_values(batch: Mapping[str, Any], key: str) -> Any:
    """The values of a small tensor as a NumPy array, from `KEY_host` if present.
    Without it, a tensor on a GPU is waited for."""
    import numpy

    value = batch.get(key + "_host")
    if value is None:
        value = batch[key]
    if is_torch(value):
        value = value.cpu().numpy()
    return numpy.asarray(value)


def is_padded(batch: Mapping[str, Any]) -> bool:
    """Whether the loader made a row of each sequence (`packing.mode: padded`)."""
    return batch.get("attention_mask") is not None and batch.get("cu_seqlens") is None


def refuse_pairs(batch: Mapping[str, Any], consumer: str) -> None:
    """Refuses preference pairs, whose rejected answers `consumer` would learn, too."""
    if batch.get("pair") is not None:
        raise FailedPrecondition(
            "pair: found preference pairs; %s would learn the rejected answers, too: take "
            "ballast.adapters.preferences, or a source without `pairs: true`" % consumer
        )


def refuse_weights(batch: Mapping[str, Any], consumer: str) -> None:
    """Refuses weights of messages, which are in loss_mask and not in labels."""
    if "weight" in getattr(batch, "fields", {}):
        raise FailedPrecondition(
            "fields: found weights of messages (weight); %s counts each label alike: take them "
            'out, batch.fields.pop("weight"), and weigh the losses of the logits by '
            'batch["loss_mask"], or leave the field out of the sources (a weight of 0 needs '
            "none)" % consumer
        )


def pack_share(batch: Mapping[str, Any]) -> Optional[Tuple[int, int]]:
    """With `packing.dynamic_cp`: the ranks that share the batch's pack, and this rank's number
    among them."""
    if batch.get("pack_share_host") is None:
        return None
    ranks, rank = (int(value) for value in host_values(batch, "pack_share"))
    return ranks, rank


def refuse_shared(batch: Mapping[str, Any], consumer: str) -> None:
    """Refuses the packs of `packing.dynamic_cp`, also one that this rank has alone: others
    share theirs."""
    share = pack_share(batch)
    if share is not None:
        raise FailedPrecondition(
            "found a pack that %d ranks share (packing.dynamic_cp); %s takes packs of one "
            "context-parallel size: take ballast.adapters.megatron_core.context_batches, or set "
            "dynamic_cp: 1" % (share[0], consumer)
        )


def sequence_bounds(batch: Mapping[str, Any], *, padded_only: bool = True) -> Dict[str, Any]:
    """The bounds of a packed batch's samples and the longest, by the names of Megatron-Core's
    PackedSeqParams.

    All four arrays are the places of the samples, padding at their ends included, unless
    `padded_only` is false: multi-token prediction (`roll_tensor`) shifts the tokens between
    the bounds of `cu_seqlens_q` and does not know the others. Attention is causal, so a
    sample's own tokens do not see its padding.
    """
    padded = batch["cu_seqlens_padded"]
    bounds = padded if padded_only else batch["cu_seqlens"]
    longest = int(batch["max_seqlen"])
    return {
        "cu_seqlens_q": bounds,
        "cu_seqlens_kv": bounds,
        "cu_seqlens_q_padded": padded,
        "cu_seqlens_kv_padded": padded,
        "max_seqlen_q": longest,
        "max_seqlen_kv": longest,
    }


def require_packed(batch: Mapping[str, Any], consumer: str) -> None:
    """Refuses a padded batch, which has no lengths for `consumer`, preference pairs, and
    packs that ranks share."""
    refuse_pairs(batch, consumer)
    refuse_shared(batch, consumer)
    if is_padded(batch):
        raise FailedPrecondition(
            "found a padded batch of %d rows; %s takes packed ones: set packing.mode to shard "
            "or scheduled" % (batch["attention_mask"].shape[0], consumer)
        )


def require_paired(batch: Mapping[str, Any]) -> None:
    """Refuses a batch whose images or clips belong to other ranks' texts."""
    keys = ("embedding_send_host", "embedding_receive_host")
    if any(batch.get(of + key) is not None for of in ("", "audio_") for key in keys):
        raise FailedPrecondition(
            "found a batch of balance.placement `split`, whose media do not belong to its "
            "text; the models that this adapter feeds put a rank's own images into its text: "
            "take huggingface_split.SplitPlacement or megatron_bridge.accept_split_placement, "
            "run the tower yourself and call ballast.exchange_embeddings, or set placement: "
            "paired"
        )
    check_same_samples(getattr(batch, "_parts", []))


def require_images(batch: Mapping[str, Any], consumer: str, audio: bool = False) -> None:
    """Refuses the text of samples with images from a loader without the images, and the text
    of samples with clips, unless `consumer` takes `audio`."""
    totals = getattr(batch, "totals", None)
    if totals is not None and not audio and getattr(totals, "clips", 0) > 0:
        raise FailedPrecondition(
            "found the text of %d clips of audio; %s would train without them: take "
            "ballast.adapters.huggingface_audio, or leave out the sources with clips"
            % (totals.clips, consumer)
        )
    if totals is None or batch.get("pixel_values") is not None:
        return
    without = totals.images
    if batch.get("pixel_values_videos") is None:
        without += totals.videos
    if without:
        raise FailedPrecondition(
            "found the text of %d images and %d videos without their pixels; %s would train "
            'without them: make the loader of both modules, Loader(servers, ("vision", '
            '"language"), ...)' % (totals.images, totals.videos, consumer)
        )


def on_first_stage(batch: Mapping[str, Any]) -> bool:
    """Whether a loader's batch is of the first pipeline stage, which has the tower."""
    parts = getattr(batch, "_parts", [])
    return bool(parts) and parts[-1].info.pp_rank == 0


def require_patches(batch: Mapping[str, Any], consumer: str) -> None:
    """Refuses pixels that are not patches in merge order."""
    if batch.get("imgs_sizes") is not None:
        raise InvalidArgument(
            "pixel_values: found crops of shape %s in another form; %s takes patches in merge "
            "order: set model.image_form: merge_order, or take the adapter of the model"
            % (list(batch["pixel_values"].shape), consumer)
        )


def require_no_videos(batch: Mapping[str, Any], consumer: str) -> None:
    """Refuses batches of a job whose model takes videos, also those without one: their
    text may hold places of videos that `consumer` would leave empty."""
    if batch.get("pixel_values_videos") is not None:
        raise InvalidArgument(
            "pixel_values_videos: found videos of shape %s; %s takes images alone: take "
            "ballast.adapters.huggingface, whose models take videos, or leave out the sources "
            "with videos and model.video" % (list(batch["pixel_values_videos"].shape), consumer)
        )


def require_whole(batch: Mapping[str, Any], consumer: str) -> None:
    """Refuses a batch that the loader has sliced for its context rank."""
    if is_padded(batch):
        total = int(batch["max_seqlen"])
    else:
        total = int(host_values(batch, "cu_seqlens_padded")[-1])
    for key in ("input_ids", "labels", "position_ids"):
        value: Any = batch.get(key)
        if value is not None and value.shape[-1] != total:
            raise FailedPrecondition(
                "%s: found %d of %d tokens, cut for a context rank; %s wants them all. Name "
                "the context ranks as tensor ranks: topology.modules.language {tp: TP * CP, "
                "cp: 1}, packing.align: 2 * CP" % (key, value.shape[-1], total, consumer)
            )


Images = Tuple[Any, Any]  # [P, V] patches and [images, 3] grids


def images(batch: Mapping[str, Any]) -> Optional[Images]:
    """Patches and grids, the dummy image's last; None without images."""
    require_paired(batch)
    require_patches(batch, "the model")
    require_no_videos(batch, "the model")
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
    require_whole(batch, "the image sizes of a rank without pixels")
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
