"""Arguments for Megatron-Core's path for packed sequences (THD)."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from ._arrays import from_host, host_values, require_packed, where


def packed_seq_params(
    batch: Mapping[str, Any],
    cls: Optional[Callable[..., Any]] = None,
    *,
    padded_only: bool = False,
) -> Any:
    """PackedSeqParams of a batch.

        from megatron.core.packed_seq_params import PackedSeqParams
        params = ballast.adapters.megatron_core.packed_seq_params(batch, PackedSeqParams)

    Args:
        cls: megatron.core's PackedSeqParams; fields that this version of it lacks
            are left out, and one without padded arrays gets them as the real ones, as
            with `padded_only`. None: a dictionary of the fields.
        padded_only: give the padded array for all four, as Megatron-LM's releases
            do for Transformer Engines that cannot take padding between sequences.
            Otherwise `cu_seqlens_q` and `_kv` are the real lengths, and
            `pad_between_seqs` says whether there is padding.
    """
    require_packed(batch, "the path for packed sequences")
    real, padded = batch["cu_seqlens"], batch["cu_seqlens_padded"]
    longest = int(batch["max_seqlen"])
    known = None if cls is None else inspect.signature(cls).parameters
    # Without the padded arrays, the others say where samples begin, too.
    padded_only = padded_only or (known is not None and "cu_seqlens_q_padded" not in known)
    fields: Dict[str, Any] = {
        "qkv_format": "thd",
        "cu_seqlens_q": padded if padded_only else real,
        "cu_seqlens_kv": padded if padded_only else real,
        "cu_seqlens_q_padded": padded,
        "cu_seqlens_kv_padded": padded,
        "max_seqlen_q": longest,
        "max_seqlen_kv": longest,
    }
    if not padded_only:
        gaps = host_values(batch, "cu_seqlens") != host_values(batch, "cu_seqlens_padded")
        fields["pad_between_seqs"] = bool(gaps.any())
    if cls is None or known is None:
        return fields
    return cls(**{key: value for key, value in fields.items() if key in known})


def padding_mask(batch: Mapping[str, Any], like: Any = None) -> Any:
    """bool [1, T], true in alignment padding; computed on the host from the lengths.

    `like`: an array whose library and device the result gets. Default: the batch's
    input ids, or another tensor of length T.
    """
    import numpy

    real = host_values(batch, "cu_seqlens").astype(numpy.int64)
    padded = host_values(batch, "cu_seqlens_padded").astype(numpy.int64)
    ends = padded[:-1] + (real[1:] - real[:-1])
    mask = numpy.arange(padded[-1]) >= numpy.repeat(ends, padded[1:] - padded[:-1])
    if like is None:
        for key in ("input_ids", "labels", "position_ids", "cu_seqlens"):
            like = batch.get(key)
            if like is not None:
                break
    return from_host(mask[None, :], like)


def get_batch(
    batch: Mapping[str, Any],
    cls: Optional[Callable[..., Any]] = None,
    *,
    padded_only: bool = False,
) -> Tuple[Any, Any, Any, None, Any, Any, Any]:
    """The result of `get_batch_on_this_rank_for_sequence_packing`: (tokens, labels,
    loss_mask, None, position_ids, PackedSeqParams, padding_mask).

    Tensors that this rank's stage does not have are None. As in Megatron-Core, tokens,
    labels, loss mask and positions are 0 in padding; without padding the batch's own
    tensors are passed through. If the batch is sliced for context parallelism, its
    lengths stay the whole sequence's, padding stays as Ballast writes it (label
    -100, loss mask 0), and the mask is None.
    """
    params = packed_seq_params(batch, cls, padded_only=padded_only)
    keys = ("input_ids", "labels", "loss_mask", "position_ids")
    fields = [batch.get(key) for key in keys]
    total = int(host_values(batch, "cu_seqlens_padded")[-1])
    mask = None
    if all(field is None or field.shape[-1] == total for field in fields):
        mask = padding_mask(batch)
        real = int(host_values(batch, "cu_seqlens")[-1])
        if real != total:
            kept = ~mask
            fields = [None if f is None else where(kept, f, 0) for f in fields]
    tokens, labels, loss_mask, positions = fields
    return tokens, labels, loss_mask, None, positions, params, mask
