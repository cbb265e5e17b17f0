"""The dummy image or clip of a batch, which belongs to no sample, in the arguments of models that
refuse media without placeholders: its placeholders follow all others, no token sees them, and
nothing is learnt of them. So the tower runs on every rank that others wait for, and its gradients
from the dummy are 0."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ..errors import FailedPrecondition
from ._arrays import concatenate, from_host, full, host_values, is_torch

_COLUMNS = {
    "input_ids": 0, "labels": -100, "attention_mask": 0, "completion_mask": 0, "position_ids": 0,
}  # fmt: skip


def has_dummy_image(batch: Mapping[str, Any]) -> bool:
    return bool(getattr(batch, "dummy_image", False))


def has_dummy_clip(batch: Mapping[str, Any]) -> bool:
    return bool(getattr(batch, "dummy_clip", False))


def image_tokens(batch: Mapping[str, Any], count: int = 1) -> List[int]:
    """The placeholders of a dummy image, which a model makes `count` rows of; [] without one."""
    return [_token(batch, "image_token", "image")] * count if has_dummy_image(batch) else []


def clip_tokens(batch: Mapping[str, Any], count: int) -> List[int]:
    """Likewise of a dummy clip."""
    return [_token(batch, "audio_token", "clip")] * count if has_dummy_clip(batch) else []


def _token(batch: Mapping[str, Any], name: str, what: str) -> int:
    token = int(getattr(batch, name, 0))
    if not token:
        raise FailedPrecondition(
            "found a dummy %s in a batch without %s: give the adapter the loader's batch, or a "
            "`clone` of it" % (what, name)
        )
    return token


def _unit(*sizes: int) -> int:
    """The power of two, at most 128, of which all sizes are multiples, as GEMMs of 8 bits
    want them."""
    found = 128
    while any(size % found for size in sizes):
        found //= 2
    return found


def with_sample(
    batch: Mapping[str, Any], inputs: Dict[str, Any], tokens: List[int]
) -> Dict[str, Any]:
    """The arguments of a packed row with a sample of `tokens` after the others, as long as keeps
    the row a multiple of what all samples' places are multiples of."""
    if not tokens:
        return inputs
    import numpy

    places = host_values(batch, "cu_seqlens_padded")
    unit, begin = _unit(*places.tolist()), int(places[-1])
    size = -(-len(tokens) // unit) * unit
    positions = inputs["position_ids"]
    counted = numpy.zeros((*positions.shape[:-1], size), numpy.int64)
    # Of several axes the first counts, and separates the samples.
    (counted[0] if len(counted.shape) == 3 else counted)[..., :] = numpy.arange(size)
    more = from_host(counted, positions)
    more = more.to(positions.dtype) if is_torch(more) else more.astype(positions.dtype)
    inputs["position_ids"] = concatenate([positions, more], len(positions.shape) - 1)
    ids = full(inputs["input_ids"], (1, size), 0)
    ids[:, : len(tokens)] = from_host(numpy.array(tokens), ids)
    inputs["input_ids"] = concatenate([inputs["input_ids"], ids], 1)
    labels = inputs["labels"]
    inputs["labels"] = concatenate([labels, full(labels, (1, size), -100)], 1)
    if "seq_idx" in inputs:
        numbers, bounds = inputs["seq_idx"], inputs["cu_seq_lens_q"]
        more = full(numbers, (1, size), len(places) - 1)
        inputs["seq_idx"] = concatenate([numbers, more], 1)
        bounds = concatenate([bounds, full(bounds, (1,), begin + size)], 0)
        longest = max(inputs["max_length_q"], size)
        inputs.update(cu_seq_lens_q=bounds, cu_seq_lens_k=bounds,
                      max_length_q=longest, max_length_k=longest)  # fmt: skip
    return inputs


def with_columns(inputs: Dict[str, Any], tokens: List[int]) -> Dict[str, Any]:
    """The arguments of rows with `tokens` in padding after the last row's, where a tower's rows
    for the last image and clip go."""
    if not tokens:
        return inputs
    import numpy

    unit = _unit(inputs["input_ids"].shape[-1])
    size = -(-len(tokens) // unit) * unit
    for key in _COLUMNS.keys() & inputs.keys():
        value = inputs[key]
        more = full(value, (*value.shape[:-1], size), _COLUMNS[key])
        if key == "input_ids":
            more[-1, : len(tokens)] = from_host(numpy.array(tokens), more)
        inputs[key] = concatenate([value, more], len(value.shape) - 1)
    return inputs
