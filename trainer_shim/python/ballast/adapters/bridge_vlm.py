"""Batches for Megatron-Bridge's `vlm_step`, for its Qwen2.5-VL, Qwen3-VL and Qwen3.5-VL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional

from ..errors import FailedPrecondition, InvalidArgument
from ._arrays import is_padded, is_torch, on_first_stage, sequence_bounds
from ._images import grids_of_positions
from ._takes import check
from ._encoder_inputs import images_of
from ._layout import Layout

if TYPE_CHECKING:
    from ..batch import Batch
    from ..loader import Loader

_MODELS = ("qwen2_5_vl", "qwen3_vl", "qwen3_5_vl")
_VIDEOS = ("pixel_values_videos", "video_grid_thw", "second_per_grid_ts")


class Vlm:
    """Turns each batch of a loader into the batch that `vlm_step` reads.

        to_vlm = ballast.adapters.bridge_vlm.Vlm(loader, "qwen2_5_vl")
        data_iterator = map(to_vlm, loader)

    Keys: `input_ids` and `position_ids` on every pipeline stage, `labels` and
    `loss_mask` if the stage has them, `attention_mask` None, `visual_inputs` (an object
    with `pixel_values` and `image_grid_thw`, and for videos `pixel_values_videos`,
    `video_grid_thw` and `second_per_grid_ts`; None without both), `cu_seqlens_q`,
    `cu_seqlens_kv`, `cu_seqlens_q_padded`, `cu_seqlens_kv_padded` (all of them the places
    of the samples, as multi-token prediction wants them) and, as tensors in
    host memory, `max_seqlen_q`, `max_seqlen_kv`. The step sets every other key to None,
    so there are no others. A padded batch (`packing.mode: padded`) has rows [B, S] and
    no lengths: attention is causal, so padding at the end of a row needs no mask.

    The first stage's loader has both modules; later ones have "language" and
    `needs_input_ids=True`. Qwen2.5-VL computes positions from the images' sizes on
    every stage: later stages derive the sizes of images from the rotary positions, and
    refuse videos. A dummy image is refused, since these models refuse an image without
    tokens: use MimoModel, or `balance.align_images: false` where no rank waits for another's
    tower.

    Opens the loader. Raises FailedPrecondition for a layout that the model cannot
    run.

    Args:
        model: "qwen2_5_vl", "qwen3_vl" or "qwen3_5_vl" (dense and MoE). The last two
            also take packed batches that are sliced for a context rank.
    """

    def __init__(self, loader: Loader, model: str) -> None:
        if model not in _MODELS:
            raise InvalidArgument("model: found %r; wanted one of %s" % (model, list(_MODELS)))
        one_process(Layout.of(loader.job), model)
        job = loader.job["model"]
        self._model = model
        self._image_token = int(job["token_ids"]["image"])
        self._merge = int(job["merge"])

    def __call__(self, batch: Batch) -> Dict[str, Any]:
        check(batch, "bridge_vlm.Vlm")
        if self._model == "qwen2_5_vl" or is_padded(batch):
            # Rows are cut by the model itself.
            check(batch, "bridge_vlm.Vlm", "parts of context ranks")
        inputs: Dict[str, Any] = {
            key: batch.get(key) for key in ("input_ids", "position_ids", "labels", "loss_mask")
        }
        inputs["attention_mask"] = None
        if not is_padded(batch):
            inputs.update(packing(batch))
        inputs["visual_inputs"] = visual_inputs(
            batch,
            self._image_token,
            self._merge,
            # Qwen3-VL takes the positions as they are.
            wants_grid=self._model == "qwen2_5_vl",
        )
        return inputs


class VisualInputs:
    """The images and videos of a batch with the methods of Bridge's GenericVisualInputs."""

    def __init__(self, pixel_values: Any, image_grid_thw: Any, **videos: Any) -> None:
        self.pixel_values = pixel_values
        self.image_grid_thw = image_grid_thw
        vars(self).update(videos)

    def as_model_kwargs(self) -> Dict[str, Any]:
        return {key: value for key, value in vars(self).items() if value is not None}

    def normalized_for_model(self) -> Dict[str, Any]:
        return self.as_model_kwargs()


def visual_inputs(
    batch: Mapping[str, Any], image_token: int, merge: int, *, wants_grid: bool
) -> Optional[VisualInputs]:
    """The images and videos; on a rank without pixels the sizes of images if `wants_grid`,
    else None. Refuses a first stage without the pixels of its samples."""
    if on_first_stage(batch):
        check(batch, "bridge_vlm.Vlm", "audio", "text without its pixels")
    check(batch, "bridge_vlm.Vlm", "split placement", "other forms of pixels", "dummies")
    images = images_of(batch, dummy=True) or {}
    videos = {}
    if batch.get("pixel_values_videos") is not None and batch["video_grid_thw"].shape[0] > 0:
        if len(batch["pixel_values_videos"].shape) != 2:
            check(batch, "bridge_vlm.Vlm", "videos")  # tiles
        videos = {key: batch.get(key) for key in _VIDEOS}
    if images or videos:
        return VisualInputs(images.get("pixel_values"), images.get("image_grid_thw"), **videos)
    if "pixel_values" in batch or not wants_grid:
        return None
    grid = grids_of_positions(batch, image_token, merge)
    return None if grid is None else VisualInputs(None, grid)


def packing(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """The lengths as entries of the dictionary, all of them tensors."""
    return {
        key: host_number(value, batch["cu_seqlens"]) if isinstance(value, int) else value
        for key, value in sequence_bounds(batch).items()
    }


def host_number(value: int, like: Any) -> Any:
    """int32 [1] in host memory: a tensor if `like` is one, else a NumPy array."""
    if is_torch(like):
        import torch

        return torch.tensor([value], dtype=torch.int32)
    import numpy

    return numpy.array([value], numpy.int32)


def one_process(layout: Layout, model: str) -> None:
    """Refuses layouts in which the tower is not on the language model's first stage."""
    language = layout.language
    for tower in (layout.vision, layout.audio):
        if tower is None:
            continue
        tower.must_be_one("pp", model, "its towers are on the first pipeline stage")
        if language is not None and not (layout.colocated and tower.dp == language.dp):
            raise FailedPrecondition(
                "topology: found %s.dp %d, language.dp %d, colocated: %s; %s has towers and "
                "language model in one process: set colocated: true and one dp for both, or "
                "train it as a MimoModel"
                % (tower.name, tower.dp, language.dp, str(layout.colocated).lower(), model)
            )
    if model == "qwen2_5_vl" and language is not None:
        language.must_be_one("cp", model, "it computes positions from whole samples")
