"""Batches for Megatron-Bridge's `qwen3_omni_step`: one sample per row, unpacked, with images,
videos and clips of audio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional

from ..errors import FailedPrecondition, InvalidArgument
from ._takes import check
from ._encoder_inputs import clips_of, images_of
from ._layout import Layout
from .bridge_qwen3_vl import step_rows
from .bridge_vlm import one_process

if TYPE_CHECKING:
    from ..batch import Batch
    from ..loader import Loader

__all__ = ["OmniStep"]

_MODELS = ("qwen2_5_omni", "qwen3_omni")


class OmniStep:
    """Turns each batch of a loader into the batch that `qwen3_omni_step` reads.

        loader = ballast.Loader(servers, ("vision", "audio", "language"), dp_rank=rank)
        to_rows = ballast.adapters.bridge_omni.OmniStep(loader)
        data_iterator = map(to_rows, loader)

    Give the job `packing.mode: padded`, as for `bridge_qwen3_vl.Qwen3VlStep`.

    Keys: `input_ids`, `labels`, `loss_mask` [B, S], `attention_mask` bool [B, S],
    `position_ids` None (the model computes them), and of what the batch has: `pixel_values`,
    `image_grid_thw`, `pixel_values_videos`, `video_grid_thw`, `video_second_per_grid` [videos],
    `input_features` [N, M, T], `feature_attention_mask` [N, T] and `audio_feature_lengths` int64
    [N]. A dummy image and a dummy clip are refused: give the job `balance.align_images: false`.

    Opens the loader. Raises FailedPrecondition for a layout that the model cannot run, for
    `model.video.use_audio_in_video`, which the step does not hand on, and for a batch whose
    number of samples is not `micro_batch_size`. With "qwen3_omni" every sample of a micro-batch
    has one clip, or none has: Bridge's model takes the placeholders of each row for one clip.

    Args:
        model: "qwen3_omni", or "qwen2_5_omni": Bridge's model of it takes the same arguments,
            and Bridge has no step for it.
        seq_length, micro_batch_size: as Qwen3VlStep takes them.
    """

    def __init__(
        self,
        loader: Loader,
        model: str = "qwen3_omni",
        *,
        seq_length: Optional[int] = None,
        micro_batch_size: Optional[int] = None,
    ) -> None:
        if model not in _MODELS:
            raise InvalidArgument("model: found %r; wanted one of %s" % (model, list(_MODELS)))
        layout = Layout.of(loader.job)
        one_process(layout, model)
        if layout.language is not None:
            layout.language.must_be_one(
                "pp", model,
                "its later stages compute positions, and the step gives them no sizes of images",
            )  # fmt: skip
            layout.language.must_be_one(
                "cp", "qwen3_omni_step",
                "it cuts whole batches itself. Name the context ranks as tensor ranks: "
                "{tp: TP * CP, cp: 1}",
            )  # fmt: skip
        job = loader.job["model"]
        if (job.get("video") or {}).get("use_audio_in_video"):
            raise FailedPrecondition(
                "model.video.use_audio_in_video: found true; qwen3_omni_step does not pass it to "
                "the model, whose positions would differ: leave it out, or train by "
                "ballast.adapters.huggingface_audio or megatron_bridge.Mimo"
            )
        self._hears = layout.audio is not None
        self._one_clip = model == "qwen3_omni"
        self._pad = int(job["token_ids"]["pad"])
        self._length = seq_length
        self._rows = micro_batch_size

    def __call__(self, batch: Batch) -> Dict[str, Any]:
        check(batch, "bridge_omni.OmniStep")
        if not self._hears:
            check(batch, "bridge_omni.OmniStep", "audio")
        inputs = step_rows(batch, self._pad, self._rows, self._length)
        if batch.get("pixel_values") is not None:
            check(batch, "bridge_omni.OmniStep", "other forms of pixels")
            images = images_of(batch, dummy=True) or {}
            inputs.update(
                {key: images[key] for key in ("pixel_values", "image_grid_thw") if key in images}
            )
        grids: Any = batch.get("video_grid_thw")
        if grids is not None and grids.shape[0] > 0:
            if len(batch["pixel_values_videos"].shape) != 2:
                check(batch, "bridge_omni.OmniStep", "videos")  # tiles
            inputs["pixel_values_videos"] = batch["pixel_values_videos"]
            inputs["video_grid_thw"] = grids
            inputs["video_second_per_grid"] = batch["second_per_grid_ts"]
        clips = clips_of(batch)
        if clips:
            self._check_clips(batch)
            inputs["audio_feature_lengths"] = clips.pop("seq_lengths")
            inputs.update(clips)
        return inputs

    def _check_clips(self, batch: Batch) -> None:
        counts = batch.clips_per_sample
        if self._one_clip and set(counts) != {1}:
            raise FailedPrecondition(
                "step %d, micro-batch %d: found samples with %s clips of audio on this rank; "
                "Bridge's Qwen3-Omni takes one in each sample, or none in all: serve such samples "
                "alone, or train by ballast.adapters.huggingface_audio or megatron_bridge.Mimo"
                % (batch.step, batch.micro_batch, ", ".join(map(str, counts)))
            )
