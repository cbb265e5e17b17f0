"""Batches for Megatron-Bridge's `qwen3_vl_step`: one sample per row, unpacked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional

from ..errors import FailedPrecondition
from . import padded
from ._takes import check
from ._layout import Layout
from .bridge_vlm import one_process, visual_inputs

if TYPE_CHECKING:
    from ..batch import Batch
    from ..loader import Loader


class Qwen3VlStep:
    """Turns each batch of a loader into the batch that `qwen3_vl_step` reads.

    Give the job `packing.mode: padded`, so that the loader makes the rows: equally long
    on all ranks and pipeline stages, and without a copy. `packing.row_length` sets S.
    Packed batches are taken apart here, and S differs between ranks.

        to_rows = ballast.adapters.bridge_qwen3_vl.Qwen3VlStep(loader)
        data_iterator = map(to_rows, loader)

    Keys: `input_ids` [B, S] on every pipeline stage, `labels`, `loss_mask` [B, S]
    if the stage has them, `attention_mask` bool [B, S], `position_ids` None (the model
    computes them) and `visual_inputs`, as in `bridge_vlm.Vlm`. The step refuses batches
    with `cu_seqlens`, and slices for context ranks itself. Later stages refuse videos, whose
    sizes they cannot derive.

    Opens the loader. Raises FailedPrecondition for a layout that the model cannot
    run, and for a batch whose number of samples is not `micro_batch_size`.

    Args:
        seq_length: the model's. With pipeline stages or expert parallelism the step
            silently cuts rows to it; here a longer sample is an error.
        micro_batch_size: rows that the pipeline schedule expects. It needs
            `balance.equal_count: true`. None: any number.
    """

    def __init__(
        self,
        loader: Loader,
        *,
        seq_length: Optional[int] = None,
        micro_batch_size: Optional[int] = None,
    ) -> None:
        layout = Layout.of(loader.job)
        one_process(layout, "qwen3_vl")
        if layout.language is not None:
            layout.language.must_be_one(
                "cp", "qwen3_vl_step",
                "it cuts whole batches itself. Name the context ranks as tensor ranks: "
                "{tp: TP * CP, cp: 1}",
            )  # fmt: skip
        model = loader.job["model"]
        self._pad = int(model["token_ids"]["pad"])
        self._image_token = int(model["token_ids"]["image"])
        self._merge = int(model["merge"])
        self._length = seq_length
        self._rows = micro_batch_size

    def __call__(self, batch: Batch) -> Dict[str, Any]:
        inputs = step_rows(batch, self._pad, self._rows, self._length)
        inputs["visual_inputs"] = visual_inputs(
            batch, self._image_token, self._merge, wants_grid=True
        )
        return inputs


def step_rows(batch: Batch, pad: int, rows: Optional[int], length: Optional[int]) -> Dict[str, Any]:
    """The text of a batch, a sample a row, for steps whose models compute positions. `rows` and
    `length`: `micro_batch_size` and `seq_length` of Qwen3VlStep."""
    check(batch, "bridge_qwen3_vl.step_rows")
    inputs = padded.rows(batch, pad=pad)
    count, width = inputs["input_ids"].shape
    if rows is not None and count != rows:
        raise FailedPrecondition(
            "step %d, micro-batch %d: found %d samples on this rank, wanted %d, the micro "
            "batch size: set balance.equal_count: true, and batch.micro to %d times dp"
            % (batch.step, batch.micro_batch, count, rows, rows)
        )
    if length is not None and width > length:
        raise FailedPrecondition(
            "step %d, micro-batch %d: found rows of %d tokens; the step would cut it to "
            "seq_length %d: set batch.max_tokens, and packing.row_length if given, to that "
            "or less" % (batch.step, batch.micro_batch, width, length)
        )
    for key in ("labels", "loss_mask"):
        inputs.setdefault(key, None)
    inputs["position_ids"] = None
    return inputs
