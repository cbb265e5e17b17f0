"""What each adapter takes of a batch, as one table, and what is said of the rest.

A column is something that a batch may have; a row is an adapter. docs/pytorch.md has the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from ..errors import BallastError, FailedPrecondition, InvalidArgument
from ..tensor import check_same_samples
from ._arrays import host_values, is_padded, pack_share

Batch = Mapping[str, Any]


def _pairs(batch: Batch, consumer: str) -> Optional[BallastError]:
    if batch.get("pair") is None:
        return None
    return FailedPrecondition(
        "pair: found preference pairs; %s would learn the rejected answers, too: take "
        "ballast.adapters.preferences, or a source without `pairs: true`" % consumer
    )


def _weights(batch: Batch, consumer: str) -> Optional[BallastError]:
    if "weight" not in getattr(batch, "fields", {}):
        return None
    return FailedPrecondition(
        "fields: found weights of messages (weight); %s counts each label alike: take them "
        'out, batch.fields.pop("weight"), and weigh the losses of the logits by '
        'batch["loss_mask"], or leave the field out of the sources (a weight of 0 needs '
        "none)" % consumer
    )


def _shared_packs(batch: Batch, consumer: str) -> Optional[BallastError]:
    share = pack_share(batch)  # also of a pack that this rank has alone: others share theirs
    if share is None:
        return None
    return FailedPrecondition(
        "found a pack that %d ranks share (packing.dynamic_cp); %s takes packs of one "
        "context-parallel size: take ballast.adapters.megatron_core.context_batches, or set "
        "dynamic_cp: 1" % (share[0], consumer)
    )


def _rows(batch: Batch, consumer: str) -> Optional[BallastError]:
    if not is_padded(batch):
        return None
    return FailedPrecondition(
        "found a padded batch of %d rows; %s takes packed ones: set packing.mode to shard "
        "or scheduled" % (batch["attention_mask"].shape[0], consumer)
    )


def _context_parts(batch: Batch, consumer: str) -> Optional[BallastError]:
    if is_padded(batch):
        total = int(batch["max_seqlen"])
    else:
        total = int(host_values(batch, "cu_seqlens_padded")[-1])
    for key in ("input_ids", "labels", "position_ids"):
        value: Any = batch.get(key)
        if value is not None and value.shape[-1] != total:
            return FailedPrecondition(
                "%s: found %d of %d tokens, cut for a context rank; %s wants them all. Name "
                "the context ranks as tensor ranks: topology.modules.language {tp: TP * CP, "
                "cp: 1}, packing.align: 2 * CP" % (key, value.shape[-1], total, consumer)
            )
    return None


def _split(batch: Batch, consumer: str) -> Optional[BallastError]:
    keys = ("embedding_send_host", "embedding_receive_host")
    if any(batch.get(of + key) is not None for of in ("", "audio_") for key in keys):
        return FailedPrecondition(
            "found a batch of balance.placement `split`, whose media do not belong to its "
            "text; %s puts a rank's own images into its text: "
            "take huggingface_split.SplitPlacement or megatron_bridge.accept_split_placement, "
            "run the tower yourself and call ballast.exchange_embeddings, or set placement: "
            "paired" % consumer
        )
    check_same_samples(getattr(batch, "_parts", []))
    return None


def _audio(batch: Batch, consumer: str) -> Optional[BallastError]:
    clips = getattr(getattr(batch, "totals", None), "clips", 0)
    if not clips:
        return None
    return FailedPrecondition(
        "found the text of %d clips of audio; %s would train without them: take "
        "ballast.adapters.huggingface_audio, or leave out the sources with clips"
        % (clips, consumer)
    )


def _text_alone(batch: Batch, consumer: str) -> Optional[BallastError]:
    totals = getattr(batch, "totals", None)
    if totals is None or batch.get("pixel_values") is not None:
        return None
    without = totals.images
    if batch.get("pixel_values_videos") is None:
        without += totals.videos
    if not without:
        return None
    return FailedPrecondition(
        "found the text of %d images and %d videos without their pixels; %s would train "
        'without them: make the loader of both modules, Loader(servers, ("vision", '
        '"language"), ...)' % (totals.images, totals.videos, consumer)
    )


def _other_forms(batch: Batch, consumer: str) -> Optional[BallastError]:
    if batch.get("imgs_sizes") is None:
        return None
    return InvalidArgument(
        "pixel_values: found crops of shape %s in another form; %s takes patches in merge "
        "order: set model.image_form: merge_order, or take the adapter of the model"
        % (list(batch["pixel_values"].shape), consumer)
    )


def _videos(batch: Batch, consumer: str) -> Optional[BallastError]:
    # Also of a batch without one: its text may hold places of videos that would stay empty.
    if batch.get("pixel_values_videos") is None:
        return None
    return InvalidArgument(
        "pixel_values_videos: found videos of shape %s; %s takes images alone: take "
        "ballast.adapters.huggingface, whose models take videos, or leave out the sources "
        "with videos and model.video" % (list(batch["pixel_values_videos"].shape), consumer)
    )


def _dummies(batch: Batch, consumer: str) -> Optional[BallastError]:
    image = getattr(batch, "dummy_image", False)
    if not image and not getattr(batch, "dummy_clip", False):
        return None
    return FailedPrecondition(
        "found a dummy %s: other ranks have some in this micro-batch and this one has none. %s has no "
        "place for it, so this rank's encoder would not run, and ranks that reduce its gradients or "
        "gather its weights meanwhile (overlap_grad_reduce, FSDP) would wait without end: train as a "
        "MimoModel (megatron_bridge.Mimo), or set balance.align_images: false and reduce gradients "
        "without overlap" % ("image" if image else "clip", consumer)
    )


def _no_ids(batch: Batch, consumer: str) -> Optional[BallastError]:
    if batch.get("input_ids") is not None:
        return None
    return FailedPrecondition(
        "the batch has no input_ids; %s wants them on every pipeline stage: "
        "Loader(..., needs_input_ids=True)" % consumer
    )


#: What a batch may have: its name in the table, and the error for an adapter that refuses it.
COLUMNS: Dict[str, Callable[[Batch, str], Optional[BallastError]]] = {
    "pairs": _pairs,
    "weights": _weights,
    "packs that ranks share": _shared_packs,
    "rows": _rows,
    "parts of context ranks": _context_parts,
    "split placement": _split,
    "audio": _audio,
    "text without its pixels": _text_alone,
    "other forms of pixels": _other_forms,
    "videos": _videos,
    "dummies": _dummies,
    "no ids": _no_ids,
}


@dataclass(frozen=True)
class Row:
    """What an adapter refuses, by the names of columns."""

    consumer: str  #: of the batch, for messages
    refuses: Tuple[str, ...] = ()
    #: Refused where the adapter asks for it: the column, and when it does.
    where: Mapping[str, str] = field(default_factory=dict)


_PACKED = ("pairs", "packs that ranks share", "rows")
_STEP = "Bridge's Qwen models"
_BRIDGE = "megatron_bridge.Mimo"

TABLE: Dict[str, Row] = {
    "bridge_omni.OmniStep": Row(
        _STEP,
        ("text without its pixels", "split placement", "dummies"),
        where={
            "audio": "without the module audio",
            "other forms of pixels": "with images",
            "videos": "videos of tiles",
        },
    ),
    "bridge_qwen3_vl.step_rows": Row(_STEP, ("no ids",)),
    "bridge_vlm.Vlm": Row(
        _STEP,
        ("no ids", "pairs", "packs that ranks share"),
        where={
            "parts of context ranks": "rows, and qwen2_5_vl",
            "audio": "first stage",
            "text without its pixels": "first stage",
            "split placement": "with pixels",
            "other forms of pixels": "with pixels",
            "dummies": "with pixels",
            "videos": "videos of tiles",
        },
    ),
    "huggingface.packed": Row("huggingface.packed", (*_PACKED, "parts of context ranks")),
    "huggingface.unpacked": Row(
        "huggingface.unpacked",
        (
            *_PACKED,
            "parts of context ranks",
            "split placement",
            "audio",
            "text without its pixels",
            "other forms of pixels",
        ),
    ),
    "huggingface, images": Row(
        "Qwen's model",
        ("split placement", "text without its pixels", "other forms of pixels"),
        where={"audio": "without huggingface_audio"},
    ),
    "huggingface, labels": Row("the model's own loss", ("weights",)),
    "huggingface_audio": Row("the model", ("split placement",)),
    "huggingface_families.Family": Row(
        "this adapter",
        (*_PACKED, "parts of context ranks"),
        where={
            "videos": "models other than LLaVA-OneVision",
            "audio": "models without audio",
            "text without its pixels": "with pixels",
            "split placement": "with pixels",
        },
    ),
    "huggingface_split.SplitPlacement": Row(
        "balance.placement `split` in one process", ("videos",)
    ),
    "megatron_bridge.Mimo": Row(
        _BRIDGE,
        ("pairs", "packs that ranks share"),
        where={
            "parts of context ranks": "with positions",
            "other forms of pixels": "split placement",
            "split placement": "modules in one process",
            "videos": "jobs without videos",
            "audio": "first stage, without features",
            "text without its pixels": "first stage",
        },
    ),
    "megatron_core.packed_seq_params": Row("the path for packed sequences", _PACKED),
    "megatron_core.context_batches": Row(
        "megatron_core.context_batches", ("pairs", "audio", "text without its pixels")
    ),
    "megatron_llava.forward_inputs": Row(
        "megatron_llava.forward_inputs",
        (*_PACKED, "parts of context ranks"),
        where={"split placement": "tiles", "dummies": "tiles"},
    ),
    "megatron_lm.batch_list": Row(
        "pretrain_gpt.py",
        (
            "pairs",
            "packs that ranks share",
            "audio",
            "text without its pixels",
            "split placement",
            "other forms of pixels",
            "videos",
        ),
    ),
    "padded.rows": Row("a trainer that learns every label", ("pairs",)),
    "padded.rows_of": Row("a padded batch", ("parts of context ranks",)),
    "preferences.rows": Row(
        "preferences.rows",
        ("split placement", "weights", "videos"),
        where={
            "audio": "with pixels",
            "text without its pixels": "with pixels",
            "other forms of pixels": "with pixels",
        },
    ),
    "order of images and videos": Row(
        "the order of images and videos", ("parts of context ranks",)
    ),
    "images told from positions": Row(
        "the image sizes of a rank without pixels", ("parts of context ranks",)
    ),
    "images in merge order": Row(
        "the model", ("split placement", "other forms of pixels", "videos")
    ),
}


def check(batch: Batch, adapter: str, *columns: str) -> None:
    """Raises the error of the first column that the adapter's row refuses and the batch has;
    with `columns`, of these, which the row refuses in some cases."""
    row = TABLE[adapter]
    unknown = set(columns) - set(row.where)
    if unknown:
        raise AssertionError("%s has no condition for %s" % (adapter, sorted(unknown)))
    for column in columns or row.refuses:
        error = COLUMNS[column](batch, row.consumer)
        if error is not None:
            raise error


def page() -> str:
    """The table of docs/pytorch.md, "What adapters refuse"."""
    lines = ["| adapter | refuses | and, in some cases |", "| --- | --- | --- |"]
    for name, row in TABLE.items():
        some = "; ".join("%s (%s)" % each for each in row.where.items())
        lines.append("| %s | %s | %s |" % (name, ", ".join(row.refuses), some))
    return "\n".join(lines) + "\n"
