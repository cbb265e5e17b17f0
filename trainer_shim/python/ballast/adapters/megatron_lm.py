"""Inputs of Megatron-LM's training scripts."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ..errors import InvalidArgument
from ._arrays import is_padded, real_images, require_images
from .bridge_vlm import host_number


def batch_list(batch: Mapping[str, Any]) -> List[Any]:
    """The list that `get_batch` of `pretrain_gpt.py` returns.

    In its order: attention_mask (None), cu_seqlens, cu_seqlens_padded int32
    [1, n+1], hybrid_cp_group (None), labels, local_cp_size (None), loss_mask,
    max_seqlen int32 [1] in host memory, position_ids, tokens. Values that the rank's
    stage does not have are None, and so are the lengths of a padded batch
    (`packing.mode: padded`), whose rows are [B, S]. Labels, mask and ids are already sliced for the
    context rank; lengths are those of whole samples.

    Raises InvalidArgument for a batch with images, which the list cannot hold, and
    FailedPrecondition for one of samples with images whose loader has no pixels.
    """
    require_images(batch, "pretrain_gpt.py")
    found = real_images(batch)
    if found is not None:
        raise InvalidArgument(
            "found %d images; get_batch of pretrain_gpt.py has no place for them and would "
            "train without: use ballast.adapters.megatron_bridge.Mimo" % found[1].shape[0]
        )
    bounds: List[Any] = [None, None]
    longest: Any = None
    if not is_padded(batch):
        bounds = [batch[key][None] for key in ("cu_seqlens", "cu_seqlens_padded")]
        longest = host_number(int(batch["max_seqlen"]), batch["cu_seqlens"])
    return [
        None,
        *bounds,
        None,
        batch.get("labels"),
        None,
        batch.get("loss_mask"),
        longest,
        batch.get("position_ids"),
        batch.get("input_ids"),
    ]


def tensors_only(inputs: Mapping[str, Any]) -> Dict[str, Any]:
    """`megatron_bridge.forward_inputs` for the `get_batch` of `examples/mimo/train.py`.

    That `get_batch` sends a tensor rank's batch to its peers and accepts only tensors:
    a None is left out, so that MimoModel's default applies, and an int becomes a tensor
    [1]. Requires `dummy_image="drop"`.
    """
    result: Dict[str, Any] = {}
    for key, value in inputs.items():
        if isinstance(value, dict):
            result[key] = tensors_only(value)
        elif isinstance(value, int):
            result[key] = host_number(value, inputs["cu_seqlens_q"])
        elif isinstance(value, tuple):
            raise InvalidArgument(
                '%s: found a tuple, which cannot be sent to tensor peers: make the inputs with '
                'dummy_image="drop"' % key
            )
        elif value is not None:
            result[key] = value
    return result
