"""Packed batches, of one row, and padded ones, of one row a sample."""

from __future__ import annotations

from typing import Any, Mapping

from .._part import check_same_samples
from ..errors import FailedPrecondition, InvalidArgument
from ._arrays import host_values


def is_padded(batch: Mapping[str, Any]) -> bool:
    """Whether the loader made a row of each sample (`packing.mode: padded`)."""
    return batch.get("attention_mask") is not None and batch.get("cu_seqlens") is None


def require_packed(batch: Mapping[str, Any], consumer: str) -> None:
    """Refuses a padded batch, which has no lengths for `consumer`."""
    if is_padded(batch):
        raise FailedPrecondition(
            "found a padded batch of %d rows; %s takes packed ones: set packing.mode to shard "
            "or scheduled" % (batch["attention_mask"].shape[0], consumer)
        )


def require_paired(batch: Mapping[str, Any]) -> None:
    """Refuses a batch whose images belong to other ranks' texts."""
    if batch.get("embedding_send_host") is not None:
        raise FailedPrecondition(
            "found a batch of balance.placement `split`, whose images are not those of its "
            "text; the models that this adapter feeds put a rank's own images into its text: "
            "take huggingface_split.SplitPlacement or megatron_bridge.accept_split_placement, "
            "run the tower yourself and call ballast.exchange_embeddings, or set placement: "
            "paired"
        )
    check_same_samples(getattr(batch, "_parts", []))


def require_images(batch: Mapping[str, Any], consumer: str) -> None:
    """Refuses the text of samples with images from a loader without the images."""
    totals = getattr(batch, "totals", None)
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
