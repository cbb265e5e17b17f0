"""Arguments of `forward` of Hugging Face's models that take sound."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ..errors import FailedPrecondition
from . import huggingface
from ._arrays import from_host, full, host_values, transposed
from .padded import rows

# Qwen2-Audio's encoder takes 30 s, no more and no less.
_QWEN2_AUDIO_FRAMES = 3000


def features(batch: Mapping[str, Any], frames: Optional[int] = None) -> Dict[str, Any]:
    """The clips of a batch as transformers' feature extractors return them.

    Keys: `input_features` float32 [N, M, T], `feature_attention_mask` int64 [N, T], 1
    for the frames that count. Beyond the rows that the batch has of a clip, features are
    0: encoders mask them. A dummy clip is left out, since these models refuse a clip
    that no token refers to. Empty without clips.

    Args:
        frames: T. Default: the longest clip's rows.
    """
    import numpy

    packed: Any = batch.get("input_features")
    if packed is None:
        raise FailedPrecondition(
            "the batch has no input_features; wanted a loader with the module audio, on the "
            "first pipeline stage"
        )
    places = host_values(batch, "audio_cu_rows").tolist()
    lengths = host_values(batch, "audio_feature_lengths").astype(numpy.int64)
    if getattr(batch, "dummy_clip", False):
        places, lengths = places[:-1], lengths[:-1]
    clips = len(lengths)
    if clips == 0:
        return {}
    longest = max(end - begin for begin, end in zip(places, places[1:]))
    if frames is None:
        frames = longest
    if frames < longest:
        raise FailedPrecondition(
            "a clip has %d frames, and the model takes %d; is model.profile another model's?"
            % (longest, frames)
        )
    out = full(packed, (clips, frames, packed.shape[1]), 0)
    for i, (begin, end) in enumerate(zip(places, places[1:])):
        out[i, : end - begin] = packed[begin:end]
    mask = (numpy.arange(frames)[None] < lengths[:, None]).astype(numpy.int64)
    return {
        "input_features": transposed(out, (0, 2, 1)),
        "feature_attention_mask": from_host(mask, packed),
    }


def qwen2_audio(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """Arguments for one call of Qwen2AudioForConditionalGeneration, a sample a row.

        loss = model(**ballast.adapters.huggingface_audio.qwen2_audio(batch)).loss

    Keys: `input_ids`, `labels`, `attention_mask` [B, S], `position_ids` [B, S],
    `use_cache` False; with clips `input_features` [N, 128, 3000] and
    `feature_attention_mask` [N, 3000]. A packed batch is padded first (`padded.rows`).
    """
    inputs = rows(batch, pad=0)
    inputs.pop("loss_mask", None)
    inputs["labels"] = huggingface._moved_right(inputs["labels"])
    inputs["use_cache"] = False
    inputs.update(features(batch, _QWEN2_AUDIO_FRAMES))
    return inputs
