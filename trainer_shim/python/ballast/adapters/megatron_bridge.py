"""What Megatron-Bridge's MIMO forward step takes."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional


def forward_inputs(
    batch: Mapping[str, Any],
    *,
    modality: str = "images",
    encoder: str = "qwen_visual",
    values: str = "hidden_states",
    grid: str = "grid_thw",
) -> Dict[str, Any]:
    """The micro-batch that the MIMO forward step of Megatron-Bridge expects.

        data_iterator = (ballast.adapters.megatron_bridge.forward_inputs(b) for b in loader)

    Keys: `input_ids`, `labels`, `loss_mask` [1, T], `position_ids` [3, 1, T] or
    [1, T], `attention_mask` (None: the segments say it), `modality_inputs`
    {MODALITY: {ENCODER: {VALUES: [P, V], GRID: [images, 3] int64}}} and
    `packing_kwargs`. What the rank's role does not have is None, as the forward step
    wants it: labels on a first pipeline stage, input ids on a last one, images on a
    language rank that has no encoder.

    `packing_kwargs` has `cu_seqlens_q`, `cu_seqlens_kv` (real lengths) and
    `cu_seqlens_q_padded`, `cu_seqlens_kv_padded` (places), all int32 [n+1], and
    `max_seqlen_q`, `max_seqlen_kv` as ints: the arguments of PackedSeqParams but
    `qkv_format="thd"`, which the model sets. With `packing.align: 1` the four arrays
    are equal, as Bridge's own tight pack has them. An encoder's rank, which has no
    text, gets None.
    """
    inputs: Dict[str, Any] = {
        key: batch.get(key) for key in ("input_ids", "position_ids", "labels", "loss_mask")
    }
    inputs["attention_mask"] = None
    inputs["modality_inputs"] = _modality_inputs(batch, modality, encoder, values, grid)
    inputs["packing_kwargs"] = _packing_kwargs(batch)
    return inputs


def _modality_inputs(
    batch: Mapping[str, Any], modality: str, encoder: str, values: str, grid: str
) -> Optional[Dict[str, Any]]:
    if batch.get("pixel_values") is None:
        return None
    fields = {values: batch["pixel_values"], grid: batch["image_grid_thw"]}
    return {modality: {encoder: fields}}


def _packing_kwargs(batch: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    if batch.get("cu_seqlens") is None:
        return None
    real, padded = batch["cu_seqlens"], batch["cu_seqlens_padded"]
    longest = int(batch["max_seqlen"])
    return {
        "cu_seqlens_q": real,
        "cu_seqlens_kv": real,
        "cu_seqlens_q_padded": padded,
        "cu_seqlens_kv_padded": padded,
        "max_seqlen_q": longest,
        "max_seqlen_kv": longest,
    }
