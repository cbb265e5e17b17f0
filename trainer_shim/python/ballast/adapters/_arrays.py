"""Arrays of NumPy and torch alike, and the rows of a batch."""

from __future__ import annotations

import sys
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple


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


def pack_share(batch: Mapping[str, Any]) -> Optional[Tuple[int, int]]:
    """With `packing.dynamic_cp`: the ranks that share the batch's pack, and this rank's number
    among them."""
    if batch.get("pack_share_host") is None:
        return None
    ranks, rank = (int(value) for value in host_values(batch, "pack_share"))
    return ranks, rank


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


def on_first_stage(batch: Mapping[str, Any]) -> bool:
    """Whether a loader's batch is of the first pipeline stage, which has the tower."""
    parts = getattr(batch, "_parts", [])
    return bool(parts) and parts[-1].info.pp_rank == 0
