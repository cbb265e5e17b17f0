"""Hugging Face's Qwen2.5-VL and Qwen3-VL with `balance.placement: split`."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from ..errors import InvalidArgument
from . import huggingface
from ._split import TowerBatch, is_split


class SplitPlacement:
    """Moves embeddings between a model's vision tower and its text.

        with ballast.adapters.huggingface_split.SplitPlacement(model, dp_group) as split:
            for batch in loader:
                logits = model(**split.packed(batch)).logits

    Within the context the model's forward runs the tower over this rank's images and puts
    into the text what `exchange_embeddings` brings, with Qwen3-VL's deepstack features in
    the same exchange. Gradients equal `paired` placement's, to rounding. It uses
    PyTorch's forward hooks on the model and on its tower, nothing else: the model may be
    wrapped by DistributedDataParallel or FSDP before or after, and other calls of it are
    left alone.

    Every rank of the group calls the model once for each batch, in the order of batches.
    A rank without an image runs its tower over a stand-in of one token, times zero, so
    each rank's tower takes part in collectives whatever `balance.align_images` is.

    Args:
        model: `Qwen2_5_VLForConditionalGeneration`, `Qwen3VLForConditionalGeneration`, or
            such a model in a wrapper with an attribute `module`.
        group, frozen: as `exchange_embeddings` takes them.

    Raises InvalidArgument if the model has no tower where these models have it.
    """

    def __init__(self, model: Any, group: Any = None, *, frozen: bool = False) -> None:
        self._model = _unwrapped(model)
        self._tower = self._model.model.visual
        self._group = group
        self._frozen = frozen
        self._handles: List[Any] = []
        self._current: Optional[TowerBatch] = None

    def __enter__(self) -> SplitPlacement:
        self._handles = [
            self._model.register_forward_pre_hook(self._enter_model, with_kwargs=True),
            self._model.register_forward_hook(self._leave_model, always_call=True),
            self._tower.register_forward_pre_hook(self._enter_tower, with_kwargs=True),
            self._tower.register_forward_hook(self._leave_tower),
        ]
        return self

    def __exit__(self, *_: Any) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def packed(self, batch: Mapping[str, Any]) -> Dict[str, Any]:
        """Arguments for one call of the model, as `huggingface.packed` makes them. For use
        within the context: outside it the model raises an error. A batch of `paired`
        placement is passed on as that function does."""
        if not is_split(batch):
            return huggingface.packed(batch)
        inputs = huggingface.packed_text(batch)
        return dict(inputs, pixel_values=TowerBatch(batch))

    def padded(self, batch: Mapping[str, Any]) -> Dict[str, Any]:
        """The same for padded batches, as `huggingface.padded` makes them."""
        if not is_split(batch):
            return huggingface.padded(batch)
        return dict(huggingface.padded_text(batch), pixel_values=TowerBatch(batch))

    # ---- Hooks ----

    def _enter_model(self, model: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        given = kwargs.get("pixel_values")
        self._current = given if isinstance(given, TowerBatch) else None
        if self._current is None:
            return None
        merge = self._tower.spatial_merge_size
        # The model divides the tower's rows by this grid; they are the text's rows.
        grid = [[1, merge, merge * self._current.text_tokens]]
        ids: Any = kwargs["input_ids"]
        return args, dict(
            kwargs,
            pixel_values=self._current.images(merge)[0],
            image_grid_thw=ids.new_tensor(grid),
        )

    def _leave_model(self, model: Any, args: Any, output: Any) -> None:
        self._current = None

    def _enter_tower(self, tower: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        if self._current is None:
            return None
        return args, dict(kwargs, grid_thw=self._current.images(tower.spatial_merge_size)[1])

    def _leave_tower(self, tower: Any, args: Any, output: Any) -> Any:
        if self._current is None:
            return None
        import torch

        deep = getattr(output, "deepstack_features", None) or []
        rows = output.pooler_output
        if deep:
            rows = torch.stack([rows, *deep], 1)
        rows = self._current.exchange(rows, self._group, self._frozen)
        if deep:
            rows, *deep = rows.unbind(1)
            output.deepstack_features = deep
        output.pooler_output = rows
        return output


def _unwrapped(model: Any) -> Any:
    found = model
    while not hasattr(getattr(found, "model", None), "visual"):
        if not hasattr(found, "module"):
            raise InvalidArgument(
                "model: found %s without `model.visual`; wanted Qwen2.5-VL or Qwen3-VL for "
                "conditional generation" % type(model).__name__
            )
        found = found.module
    return found
