"""Rows of preference pairs, for trainers such as TRL's DPOTrainer."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ..errors import FailedPrecondition
from ._arrays import concatenate, from_host, full, host_values, where
from ._dummies import image_tokens, with_columns
from ._images import dummy_patches
from ._takes import check
from .padded import rows_of


def rows(
    batch: Mapping[str, Any],
    *,
    pad: int,
    length: Optional[int] = None,
    multiple: int = 1,
) -> Dict[str, Any]:
    """The chosen answers of a batch, then the rejected ones in the same order.

        inputs = ballast.adapters.preferences.rows(batch, pad=tokenizer.pad_token_id)

    Keys, as TRL's collators have them: `input_ids`, `attention_mask` and
    `completion_mask` int64 [2P, S], the last one 1 where a token is learnt; of models
    with patches in merge order (Qwen's) `pixel_values` and `image_grid_thw`, each image
    twice, for the chosen rows and for the rejected ones: servers decode and ranks
    receive it once. Also `position_ids` [3, 2P, S] or [2P, S].

    The model learns the texts of the assistant's turns after the prompt, and their ends. TRL
    counts all tokens after the prompt, also tokens that a template writes between and
    after the answers.

    A dummy image is the last one, and its token is in padding after the last row.

    A batch of which a sample is no pair is refused. The number of pairs differs between
    ranks unless the configuration has `balance.equal_count: true`.

    Args:
        pad: the id that fills `input_ids`.
        length, multiple: as of `padded.rows`.
    """
    import numpy

    check(batch, "preferences.rows")
    if batch.get("pair") is None or (host_values(batch, "pair") < 0).any():
        raise FailedPrecondition(
            "pair: found samples that are no preference pairs; preferences.rows takes pairs "
            "alone: give every source `pairs: true`"
        )
    found = rows_of(batch, pad=pad, length=length, multiple=multiple)
    if "labels" not in found:
        raise FailedPrecondition(
            "labels: found none; preferences.rows is for a rank with the first and the last "
            "pipeline stage"
        )
    labels = found["labels"]
    # A label is the next token.
    behind = _ones(labels[:, :-1] != -100, labels)
    learnt = concatenate([full(labels, (labels.shape[0], 1), 0), behind], 1)
    order = numpy.argsort(host_values(batch, "pair"), kind="stable").astype(numpy.int64)
    index = from_host(order, labels)
    inputs = {
        "input_ids": found["input_ids"][index],
        "attention_mask": _ones(found["attention_mask"], labels)[index],
        "completion_mask": learnt[index],
    }
    positions = found.get("position_ids")
    if positions is not None:
        inputs["position_ids"] = (
            positions[:, index] if len(positions.shape) == 3 else positions[index]
        )
    inputs.update(_images_twice(batch))
    return with_columns(inputs, image_tokens(batch))


def _ones(condition: Any, like: Any) -> Any:
    """1 where the condition holds, else 0, of the type of `like`."""
    return where(condition, full(like, condition.shape, 1), 0)


def _images_twice(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """The images of the rows: once for the chosen answers and once for the rejected ones,
    both in the order of the samples; then a dummy image."""
    check(batch, "preferences.rows", "audio", "text without its pixels", "other forms of pixels")
    pixels: Any = batch.get("pixel_values")
    if pixels is None:
        return {}
    grid: Any = batch["image_grid_thw"]
    dummy = dummy_patches(batch)
    end, last = pixels.shape[0] - dummy, grid.shape[0] - bool(dummy)
    if grid.shape[0] == 0:
        return {}
    return {
        "pixel_values": concatenate([pixels[:end], pixels], 0),
        "image_grid_thw": concatenate([grid[:last], grid], 0),
    }
