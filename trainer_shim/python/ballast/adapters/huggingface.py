"""Arguments of `forward` of Hugging Face's Qwen2.5-VL and Qwen3-VL models, and the loss of
any of its language models."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..errors import FailedPrecondition
from ._arrays import concatenate, from_host, full, host_values, is_torch
from ._dummies import has_dummy_image, image_tokens, with_columns, with_sample
from ._takes import check
from .padded import rows


def loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
    """The sum of the losses of `labels`, divided by a number of tokens.

        inputs = ballast.adapters.huggingface.packed(batch)
        labels = inputs.pop("labels")
        count = batch.step_totals.label_tokens
        loss = ballast.adapters.huggingface.loss(model(**inputs), labels, count)

    It takes the model's logits, since a model's own loss is not the same in all releases of
    transformers: Qwen3-VL's, to 5.14, does not pass `num_items_in_batch` on and is the mean
    of its micro-batch. Also a `compute_loss_func` of Hugging Face's Trainer. It has no
    auxiliary loss of a mixture of experts.

    Args:
        outputs: of the model without `labels`: an object or a mapping with `logits`
            [B, S, V].
        labels: [B, S] of this module's functions: labels[i] is token i itself, or -100.
        num_items_in_batch: the number of tokens, at least 1: a count of 0 gives a sum of 0.
            Default: the tokens of `labels` that are learnt.
    """
    import torch

    logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs.logits
    following = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:].reshape(-1)
    total = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).float(), following.to(logits.device),
        ignore_index=-100, reduction="sum",
    )  # fmt: skip
    count = (following != -100).sum() if num_items_in_batch is None else num_items_in_batch
    if is_torch(count):
        return total / count.to(total.device).clamp(min=1)
    return total / max(count, 1)


def packed(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """Arguments for one call of the model, with all samples of a batch in one row.

        outputs = model(**ballast.adapters.huggingface.packed(batch))  # see `loss`

    Keys: `input_ids`, `labels` [1, T], `position_ids` [4, 1, T], `use_cache` False;
    `cu_seq_lens_q`, `cu_seq_lens_k`, `max_length_q`, `max_length_k`; `seq_idx` int32
    [1, T], the number of each token's sample; with images `pixel_values` and
    `image_grid_thw`; with videos `pixel_values_videos` and `video_grid_thw`. No value is
    None. The times of videos (`second_per_grid_ts`) are in the positions and in the text.

    The first axis of `position_ids` counts each sample's tokens from 0: these models
    use it to separate the samples of a row (with attention "sdpa", "eager" or
    "flex_attention"), but only without a cache, hence `use_cache`. The other three axes
    are the rotary positions. `labels` are moved one to the right, since these models
    shift them themselves. A dummy image (`Batch.dummy_image`) is one more sample at the end
    of the row, of a token that nothing is learnt of and no other token sees: the tower runs
    on every rank if it runs on any, and its gradients from the dummy are 0. Where no rank
    of a micro-batch has an image, the tower does not run: DistributedDataParallel needs
    find_unused_parameters for that.

    These models run the tower once for the images of a call and once for its videos. A
    wrapper that gathers weights in every run of a module (FSDP, ZeRO-3) waits without end
    where one rank has both and another one kind: such a job takes images or videos.

    The linear attention of Qwen3.5 reads `cu_seq_lens_q`, and its convolution `seq_idx`.
    They need the packages flash-linear-attention and causal-conv1d to keep the samples
    apart; without one of them transformers 5.23 raises ValueError, and `unpacked` or
    `padded` serve instead.
    """
    inputs = packed_text(batch)
    inputs.update(_images(batch))
    inputs.update(_videos(batch))
    return with_sample(batch, inputs, image_tokens(batch))


def packed_text(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """`packed` without the images and videos."""
    check(batch, "huggingface.packed")
    ids, positions = batch["input_ids"], batch["position_ids"]
    places, longest = batch["cu_seqlens_padded"], int(batch["max_seqlen"])
    return {
        "input_ids": ids,
        "position_ids": concatenate([_counted(batch, positions), _three(batch, positions)], 0),
        "labels": _moved_right(batch, batch["labels"]),
        "use_cache": False,
        # Linear attention and its convolution have no other way to separate samples.
        "cu_seq_lens_q": places,
        "cu_seq_lens_k": places,
        "max_length_q": longest,
        "max_length_k": longest,
        "seq_idx": _numbered(batch, ids),
    }


def padded(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """Arguments for one call of the model on a padded batch (`packing.mode: padded`).

        outputs = model(**ballast.adapters.huggingface.padded(batch))  # see `loss`

    Keys: `input_ids`, `labels`, `attention_mask` [B, S], `position_ids` [3, B, S], the
    rotary positions, `use_cache` False, and images and videos as in `packed`. Labels: as in
    `packed`. A dummy image's token is after the last row's, in padding: S is then larger. A
    packed batch is padded first (`padded.rows`).
    """
    inputs = padded_text(batch)
    inputs.update(_images(batch))
    inputs.update(_videos(batch))
    return with_columns(inputs, image_tokens(batch))


def padded_text(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """`padded` without the images and videos."""
    inputs = rows(batch, pad=0)
    inputs.pop("loss_mask", None)
    inputs["position_ids"] = _three(batch, inputs["position_ids"])
    inputs["labels"] = _moved_right(batch, inputs["labels"])
    inputs["use_cache"] = False
    return inputs


def unpacked(
    batch: Mapping[str, Any],
    images_per_sample: Optional[Sequence[int]] = None,
    videos_per_sample: Optional[Sequence[int]] = None,
) -> List[Dict[str, Any]]:
    """Arguments for one call of the model per sample of a batch, without padding.

    Keys: as of `packed`, with `position_ids` [3, 1, L] and an
    `attention_mask` of ones. A dummy image's token is after the last sample's, where the mask is
    0.

    Args:
        images_per_sample, videos_per_sample: number of images, and of videos, of each
            sample. Default: from the batch.
    """
    check(batch, "huggingface.unpacked")
    if images_per_sample is None:
        images_per_sample = batch.images_per_sample  # type: ignore[attr-defined]
    has_videos = batch.get("pixel_values_videos") is not None
    if videos_per_sample is None and has_videos:
        videos_per_sample = batch.videos_per_sample  # type: ignore[attr-defined]
    real = host_values(batch, "cu_seqlens").tolist()
    places = host_values(batch, "cu_seqlens_padded").tolist()
    ids, labels, positions = batch["input_ids"], batch["labels"], batch["position_ids"]
    images = _Items(batch, "pixel_values", "image_grid_thw", images_per_sample)
    videos = _Items(batch, "pixel_values_videos", "video_grid_thw", videos_per_sample)
    samples = []
    for i in range(len(real) - 1):
        begin, end = places[i], places[i] + real[i + 1] - real[i]
        row = ids[:, begin:end]
        inputs: Dict[str, Any] = {
            "input_ids": row,
            "attention_mask": full(row, row.shape, 1),
            "position_ids": _three(batch, positions)[..., begin:end],
            "labels": _moved_right(batch, labels[:, begin:end]),
            "use_cache": False,
        }
        is_last = i == len(real) - 2
        inputs.update(images.of(i, is_last and has_dummy_image(batch)))
        inputs.update(videos.of(i))
        samples.append(with_columns(inputs, image_tokens(batch)) if is_last else inputs)
    return samples


class _Items:
    """The images of a batch, or its videos, sample by sample."""

    def __init__(
        self, batch: Mapping[str, Any], pixels: str, grid: str, counts: Optional[Sequence[int]]
    ) -> None:
        self._keys = (pixels, grid)
        self._pixels: Any = batch.get(pixels)
        if self._pixels is None:
            return
        self._grid: Any = batch[grid]
        grids = host_values(batch, grid).tolist()
        self._rows = _sums([t * h * w for t, h, w in grids])
        self._items = _sums(counts or [])

    def of(self, sample: int, dummy: bool = False) -> Dict[str, Any]:
        """The model's arguments for a sample, with the dummy image if `dummy`; empty without
        items."""
        if self._pixels is None:
            return {}
        first, last = self._items[sample], self._items[sample + 1] + dummy
        if first == last:
            return {}
        rows = slice(self._rows[first], self._rows[last])
        return dict(zip(self._keys, (self._pixels[rows], self._grid[first:last])))


def _sums(counts: Sequence[int]) -> List[int]:
    sums = [0]
    for count in counts:
        sums.append(sums[-1] + int(count))
    return sums


def _images(batch: Mapping[str, Any], audio: bool = False) -> Dict[str, Any]:
    """The image arguments, a dummy image's last; empty without images, which these models
    expect. `audio`: the model takes audio, too."""
    check(batch, "huggingface, images")
    if not audio:
        check(batch, "huggingface, images", "audio")
    pixels: Any = batch.get("pixel_values")
    grid: Any = batch.get("image_grid_thw")
    if pixels is None or grid.shape[0] == 0:
        return {}
    return {"pixel_values": pixels, "image_grid_thw": grid}


def _videos(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """The video arguments; empty without videos."""
    grid: Any = batch.get("video_grid_thw")
    if grid is None or grid.shape[0] == 0:
        return {}
    return {"pixel_values_videos": batch["pixel_values_videos"], "video_grid_thw": grid}


def _three(batch: Mapping[str, Any], positions: Any) -> Any:
    """[3, B, S] of [3, B, S], or of one axis [B, S], where a batch may have text alone."""
    if len(positions.shape) == 3:
        return positions
    totals = getattr(batch, "totals", None)
    if totals is not None and totals.images + totals.videos:
        raise FailedPrecondition(
            "position_ids: found one axis, with %d images and %d videos; Qwen's models number "
            "their tokens by height and width, too: leave out model.position_axes"
            % (totals.images, totals.videos)
        )
    return concatenate([positions[None]] * 3, 0)


def _moved_right(batch: Mapping[str, Any], labels: Any) -> Any:
    """Moves labels of a batch right, so that labels[i] is for token i itself. The last label
    is dropped; it is never supervised, since no token follows the last. Refuses weights, since
    the models compute their loss by the labels alone."""
    check(batch, "huggingface, labels")
    return concatenate([full(labels, (labels.shape[0], 1), -100), labels[:, :-1]], 1)


def _numbered(batch: Mapping[str, Any], like: Any) -> Any:
    """int32 [1, T]: the number of each token's sample, to the end of its padding."""
    import numpy

    places = host_values(batch, "cu_seqlens_padded")
    numbers = numpy.arange(len(places) - 1, dtype=numpy.int32)
    return from_host(numpy.repeat(numbers, places[1:] - places[:-1])[None, :], like)


def _counted(batch: Mapping[str, Any], like: Any) -> Any:
    """[1, 1, T]: 0, 1, ... from the start of each sample to the end of its padding, of the
    type of `like`."""
    import numpy

    places = host_values(batch, "cu_seqlens_padded").astype(numpy.int64)
    begins = numpy.repeat(places[:-1], places[1:] - places[:-1])
    counted = from_host((numpy.arange(places[-1]) - begins)[None, None, :], like)
    return counted.to(like.dtype) if is_torch(like) else counted.astype(like.dtype)
