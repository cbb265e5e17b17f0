"""Batches of `balance.placement: split` on their way through a model's vision tower."""

from __future__ import annotations

from typing import Any, Mapping, Tuple

from ..embeddings import exchange_embeddings
from ..errors import FailedPrecondition
from ._takes import check


def is_split(batch: Mapping[str, Any]) -> bool:
    """Whether the images of a batch belong to the text of other batches, too."""
    keys = ("embedding_send_host", "embedding_receive_host")
    return any(batch.get(key) is not None for key in keys)


class TowerBatch:
    """A split batch as an argument of a tower: what it runs over, and what becomes of its
    rows. No tensor and no container, so that trainers pass it on as it is."""

    def __init__(self, batch: Mapping[str, Any]) -> None:
        if batch.get("pixel_values") is None or batch.get("input_ids") is None:
            raise FailedPrecondition(
                "found a batch of balance.placement `split` with %s alone; its embeddings move "
                "from the tower to the text in one process: make the loader of both modules, "
                'Loader(servers, ("vision", "language"), ...); or between processes: call '
                "ballast.exchange_embeddings with ballast.ModuleGroups, or take "
                "megatron_split.Batches"
                % ("text" if batch.get("pixel_values") is None else "images")
            )
        check(batch, "huggingface_split.SplitPlacement")
        self.batch = batch
        self._stand_in = False

    @property
    def text_tokens(self) -> int:
        """Number of image tokens in this rank's text."""
        return int(self.batch["embedding_order"].shape[0])

    def images(self, merge: int) -> Tuple[Any, Any]:
        """Patches and grids for the tower: at least one image, so that the tower takes
        part in collectives and every weight has a gradient. Without one, a stand-in of
        one token, whose row `exchange` drops."""
        pixels: Any = self.batch["pixel_values"]
        grid: Any = self.batch["image_grid_thw"]
        self._stand_in = grid.shape[0] == 0
        if self._stand_in:
            pixels = pixels.new_zeros((merge * merge, pixels.shape[1]))
            grid = grid.new_tensor([[1, merge, merge]])
        return pixels, grid

    def exchange(self, rows: Any, group: Any, frozen: bool) -> Any:
        """The rows of this rank's text, from the tower's rows over `images`."""
        if self._stand_in:
            rows = rows[:0] + (rows * 0).sum()
        return exchange_embeddings(rows, self.batch, group, frozen=frozen)
