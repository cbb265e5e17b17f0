"""One pass over a split of `valid` or `test`: each of its samples counts once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Mapping

from .batch import Batch
from .errors import FailedPrecondition
from .tensor import Tensor


def may_repeat(batch: Batch, job: Mapping[str, Any]) -> bool:
    """Whether samples of the batch's step may have occurred before."""
    return bool(batch.step >= job["steps_per_epoch"])


def drop_repeated(batch: Batch, job: Mapping[str, Any]) -> None:
    """Marks samples that have occurred before in the pass, and takes them out of the loss:
    `labels` -100, `loss_mask` 0, and out of every count of `label_tokens`.

    The last steps of a pass are filled up with them, since every step has as many samples.
    """
    begins: List[int] = job["one_pass"]["repeats_from"]
    batch._samples = [
        replace(each, repeated=each.position >= begins[each.source]) for each in batch.samples
    ]
    own = [number for number, each in enumerate(batch._samples) if each.repeated]
    if own:
        _unsupervise(batch, own)
    _count(batch, begins)


def _count(batch: Batch, begins: List[int]) -> None:
    micro_batches = batch.step_schedule()["micro_batches"]
    repeated = [
        {
            each["position"]: each["label_tokens"]
            for each in micro_batch["samples"]
            if each["position"] >= begins[each["source"]]
        }
        for micro_batch in micro_batches
    ]
    positions = {each.position for each in batch.samples}
    everywhere: Dict[int, int] = {}
    for each in repeated:
        everywhere.update(each)
    for name, tokens in (
        ("totals", sum(everywhere[position] for position in positions & set(everywhere))),
        ("micro_batch_totals", sum(repeated[batch.micro_batch].values())),
        ("step_totals", sum(everywhere.values())),
    ):
        totals = getattr(batch, name)
        setattr(batch, name, replace(totals, label_tokens=totals.label_tokens - tokens))


def _unsupervise(batch: Batch, samples: List[int]) -> None:
    """Takes some samples of the batch out of its loss, in copies of the tensors."""
    if batch.get("pair") is not None:
        raise FailedPrecondition(
            "found a preference pair that fills up the last step of a pass, and its losses count "
            "although nothing of it is supervised: let batch.valid.global divide the samples of "
            "the split, or ask for Loader(steps=...)"
        )
    places = batch.get("cu_seqlens_padded_host", batch.get("cu_seqlens_padded"))
    for key, nothing in (("labels", -100), ("loss_mask", 0)):
        value: Any = batch.get(key)
        if value is None:
            continue
        if isinstance(value, Tensor):
            raise FailedPrecondition(
                "found samples that fill up the last step of a pass, in a loader with "
                'array="dlpack", whose tensors cannot be changed: take "torch" or "numpy", or ask '
                "for Loader(steps=...)"
            )
        value = value.clone() if hasattr(value, "clone") else value.copy()
        if places is None:  # a row a sample
            for sample in samples:
                value[sample] = nothing
        else:
            ranks = int(places[-1]) // value.shape[-1]  # of which each has a part of each sample
            for sample in samples:
                begin, end = int(places[sample]) // ranks, int(places[sample + 1]) // ranks
                value[..., begin:end] = nothing
        batch[key] = value
