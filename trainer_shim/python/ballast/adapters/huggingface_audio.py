"""Arguments of `forward` of Hugging Face's models that take audio.

`omni_packed` and `omni_padded` are of Qwen2.5-Omni's and Qwen3-Omni's thinkers; the other
functions are of the model that they are named after, a sample a row: a packed batch is
padded first (`padded.rows`).

    loss = model(**ballast.adapters.huggingface_audio.voxtral(batch)).loss

All give `input_ids`, `labels`, `attention_mask`, `position_ids`, `use_cache` False and,
if the batch has clips, what is listed at each function, of N clips in the order of their
marks. Labels are moved one to the right, since these models shift them themselves. A
dummy clip (`Batch.dummy_clip`) is the last one, and its placeholders are in padding after the
last row, or in a sample of their own: the encoder runs on every rank if it runs on any, and its
gradients from the dummy are 0.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

from ..errors import FailedPrecondition
from . import huggingface
from ._arrays import from_host, full, host_values, transposed
from ._dummies import clip_tokens, has_dummy_clip, image_tokens, with_columns, with_sample
from ._takes import check
from .padded import rows

# The encoders of Qwen2-Audio and Voxtral take 30 s, no more and no less.
_FRAMES_OF_30_S = 3000


def features(
    batch: Mapping[str, Any],
    frames: Optional[int] = None,
    *,
    split: bool = False,
    dummy: Optional[bool] = None,
) -> Dict[str, Any]:
    """The clips of a batch as Whisper's feature extractor returns them.

    Keys: `input_features` float32 [N, M, T], `feature_attention_mask` int64 [N, T], 1
    for the frames that count. Beyond the rows that the batch has of a clip, features are
    0: encoders mask them. Empty without clips.

    Args:
        frames: T. Default: the longest clip's rows.
        split: the rows that the encoder makes of them go by the plan of balance.placement
            `split` (`ballast.exchange_embeddings`). Otherwise such a batch is refused.
        dummy: whether a dummy clip stays, for an encoder with collectives; its rows belong to
            no text. Default: a batch with one is refused.
    """
    if dummy is None and has_dummy_clip(batch):
        raise FailedPrecondition(
            "found a dummy clip: other ranks have clips in this micro-batch and this one has none. "
            "Say features(batch, dummy=True) and multiply what the encoder makes of it by 0, or "
            "features(batch, dummy=False) where no rank waits for this one's encoder"
        )
    found = _clips(batch, frames, split, bool(dummy))
    if found is None:
        return {}
    out, lengths = found
    return {
        "input_features": transposed(out, (0, 2, 1)),
        "feature_attention_mask": _mask(lengths, out.shape[1], out, "int64"),
    }


def _clips(
    batch: Mapping[str, Any],
    frames: Optional[int] = None,
    split: bool = False,
    dummy: bool = True,
) -> Optional[Tuple[Any, Any]]:
    """Rows of features [N, T, M], 0 after each clip's, and the frames of each that count.
    None without clips."""
    import numpy

    if not split:
        check(batch, "huggingface_audio")
    packed: Any = batch.get("input_features")
    if packed is None:
        raise FailedPrecondition(
            "the batch has no input_features; wanted a loader with the module audio, on the "
            "first pipeline stage"
        )
    places = host_values(batch, "audio_cu_rows").tolist()
    lengths = host_values(batch, "audio_feature_lengths").astype(numpy.int64)
    if getattr(batch, "dummy_clip", False) and not dummy:
        places, lengths = places[:-1], lengths[:-1]
    if len(lengths) == 0:
        return None
    longest = max(end - begin for begin, end in zip(places, places[1:]))
    if frames is None:
        frames = longest
    if frames < longest:
        raise FailedPrecondition(
            "a clip has %d frames, and the model takes %d; is model.profile another model's?"
            % (longest, frames)
        )
    out = full(packed, (len(lengths), frames, packed.shape[1]), 0)
    for i, (begin, end) in enumerate(zip(places, places[1:])):
        out[i, : end - begin] = packed[begin:end]
    if dummy and has_dummy_clip(batch):
        # A loader's rows of it are 0, of which Gemma 3n's norms give gradients that are no numbers.
        out[-1] = 1
    return out, lengths


def _mask(lengths: Any, width: int, like: Any, dtype: str) -> Any:
    """[N, width] of the type: 1 in the first numbers of each row, as many as it has."""
    import numpy

    return from_host((numpy.arange(width)[None] < lengths[:, None]).astype(dtype), like)


def _check_equal(lengths: Any, mixed: bool) -> None:
    if mixed or lengths.min() == lengths.max():
        return
    raise FailedPrecondition(
        "found clips of %d to %d frames in one call; the model's encoder would let padding into "
        "the embeddings of the shorter ones: make micro-batches of one sample with one clip a "
        "rank, or accept this with mixed=True" % (lengths.min(), lengths.max())
    )


def _rows(batch: Mapping[str, Any], tokens: int) -> Dict[str, Any]:
    """The arguments of every model, a sample a row. `tokens`: placeholders of a dummy clip."""
    inputs = rows(batch, pad=0)
    inputs.pop("loss_mask", None)
    inputs["labels"] = huggingface._moved_right(batch, inputs["labels"])
    inputs["use_cache"] = False
    return with_columns(inputs, clip_tokens(batch, tokens))


def _last_length(batch: Mapping[str, Any]) -> int:
    """Frames of the last clip, which a dummy one is; 0 without clips."""
    lengths = host_values(batch, "audio_feature_lengths")
    return int(lengths[-1]) if len(lengths) else 0


def _convolved(frames: int, *layers: Tuple[int, int, int]) -> int:
    """Frames that convolutions (kernel, stride, padding) make of frames."""
    for kernel, stride, padding in layers:
        frames = (frames + 2 * padding - kernel) // stride + 1
    return frames


def omni_packed(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """Arguments for one call of Qwen2_5OmniThinkerForConditionalGeneration or
    Qwen3OmniMoeThinkerForConditionalGeneration, with all samples of a batch in one row.

    Keys: as `huggingface.packed`, and of clips `input_features` [N, 128, T] and
    `feature_attention_mask` [N, T].
    """
    inputs = huggingface.packed_text(batch)
    inputs.update(huggingface._images(batch, audio=True))
    inputs.update(huggingface._videos(batch))
    inputs.update(features(batch, dummy=True))
    # Of the few frames of a dummy clip the encoders make one token.
    tokens = image_tokens(batch) + clip_tokens(batch, 1)
    return with_sample(batch, inputs, tokens)


def omni_padded(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """As `omni_packed`, a sample a row: keys as `huggingface.padded`, and of clips."""
    inputs = huggingface.padded_text(batch)
    inputs.update(huggingface._images(batch, audio=True))
    inputs.update(huggingface._videos(batch))
    inputs.update(features(batch, dummy=True))
    # Of the few frames of a dummy clip the encoders make one token.
    tokens = image_tokens(batch) + clip_tokens(batch, 1)
    return with_columns(inputs, tokens)


def qwen2_audio(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """Arguments for one call of Qwen2AudioForConditionalGeneration.

    Of clips: `input_features` [N, 128, 3000] and `feature_attention_mask` [N, 3000].
    """
    clips = features(batch, _FRAMES_OF_30_S, dummy=True)
    if has_dummy_clip(batch):
        # Two tokens: of a single one the model takes the text for one without placeholders.
        clips["feature_attention_mask"][-1, :7] = 1
    return {**_rows(batch, 2), **clips}


def voxtral(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """Arguments for one call of VoxtralForConditionalGeneration.

    Of clips: `input_features` [chunks, 128, 3000], a chunk for every 30 s.
    """
    check(batch, "huggingface, labels")
    check(batch, "huggingface_audio")
    packed: Any = batch.get("input_features")
    if packed is None or packed.shape[0] % _FRAMES_OF_30_S:
        found = "none" if packed is None else "%d rows" % packed.shape[0]
        raise FailedPrecondition(
            "input_features: found %s; wanted chunks of 3000 rows, from a loader with the module "
            "audio of a job with model.profile voxtral" % found
        )
    # A chunk's 3000 frames are halved, and four of what is left are a token.
    inputs = _rows(batch, _FRAMES_OF_30_S // 8 * (packed.shape[0] // _FRAMES_OF_30_S))
    if packed.shape[0] > 0:
        chunks = packed.reshape(-1, _FRAMES_OF_30_S, packed.shape[1])
        inputs["input_features"] = transposed(chunks, (0, 2, 1))
    return inputs


def phi4_multimodal(batch: Mapping[str, Any], mixed: bool = False) -> Dict[str, Any]:
    """Arguments for one call of Phi4MultimodalForCausalLM.

    Of clips: `audio_input_features` [N, T, 80], `audio_embed_sizes` [N] and, of several,
    `audio_attention_mask` bool [N, T].

    The model's encoder lets the padding of a clip into its embeddings, also the padding of
    its own processor. So clips of unequal length are refused.

    Args:
        mixed: take them, padded with zeros: embeddings then depend on the longest clip.
    """
    found = _clips(batch)
    inputs = _rows(batch, (_last_length(batch) + 7) // 8)
    if found is None:
        return inputs
    out, lengths = found
    _check_equal(lengths, mixed)
    inputs["audio_input_features"] = out
    inputs["audio_embed_sizes"] = from_host((lengths + 7) // 8, out)
    if len(lengths) > 1:
        inputs["audio_attention_mask"] = _mask(lengths, out.shape[1], out, "bool")
    return inputs


def granite_speech(batch: Mapping[str, Any], mixed: bool = False) -> Dict[str, Any]:
    """Arguments for one call of GraniteSpeechForConditionalGeneration.

    Of clips: `input_features` [N, T, 160] and `input_features_mask` bool [N, tokens of the
    longest clip], the embeddings that count. Clips of unequal length, and `mixed`: as
    of `phi4_multimodal`.
    """
    found = _clips(batch)
    inputs = _rows(batch, 3 * ((_last_length(batch) + 14) // 15))
    if found is None:
        return inputs
    out, lengths = found
    _check_equal(lengths, mixed)
    tokens = 3 * ((lengths + 14) // 15)
    inputs["input_features"] = out
    inputs["input_features_mask"] = _mask(tokens, int(tokens.max()), out, "bool")
    return inputs


def gemma3n(batch: Mapping[str, Any], mixed: bool = False) -> Dict[str, Any]:
    """Arguments for one call of Gemma3nForConditionalGeneration with clips, without images.

    Of clips: as of `gemma4`. Clips of unequal length, and `mixed`: as of
    `phi4_multimodal`.
    """
    _refuse_images(batch)
    clips = _gemma_clips(batch)
    # Its encoder makes 188 tokens of any clip.
    inputs = {**_rows(batch, 188), **clips}
    if clips:
        _check_equal(inputs["input_features_mask"].sum(1), mixed)
    return inputs


def gemma4(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """Arguments for one call of Gemma4ForConditionalGeneration with clips, without images:
    for images and clips take `huggingface_families.Family(model.config).padded`.

    Of clips: `input_features` [N, T, 128] and `input_features_mask` bool [N, T].
    """
    _refuse_images(batch)
    clips = _gemma_clips(batch)
    return {**_rows(batch, _gemma4_tokens(batch)), **clips}


def _gemma4_tokens(batch: Mapping[str, Any]) -> int:
    return _convolved(_last_length(batch), (3, 2, 1), (3, 2, 1))


def _refuse_images(batch: Mapping[str, Any]) -> None:
    totals = getattr(batch, "totals", None)
    if totals is not None and totals.images:
        raise FailedPrecondition(
            "found the text of %d images, which this adapter leaves out; wanted "
            "ballast.adapters.huggingface_families.Family(model.config).padded, which gives the "
            "model both" % totals.images
        )


def _has_clips(batch: Mapping[str, Any]) -> bool:
    totals = getattr(batch, "totals", None)
    return batch.get("input_features") is not None or bool(getattr(totals, "clips", 0))


def _gemma_clips(batch: Mapping[str, Any], dummy: bool = True) -> Dict[str, Any]:
    """The clips alone of `gemma4`; empty without clips."""
    found = _clips(batch, dummy=dummy)
    if found is None:
        return {}
    out, lengths = found
    return {
        "input_features": out,
        "input_features_mask": _mask(lengths, out.shape[1], out, "bool"),
    }
