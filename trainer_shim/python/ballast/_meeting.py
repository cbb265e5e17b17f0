"""Communicators that a loader makes itself: the groups that meet, and their names."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from ._arguments import Place, is_encoder
from .communicator import Communicator
from .connection import Connection


class Meeting:
    """The groups of one rank, which meet through the job's servers: over NCCL on a GPU,
    else over Gloo."""

    def __init__(
        self, connection: Connection, place: Place, device: Optional[int], max_ctas: int, split: str
    ) -> None:
        # Loaders of two splits meet in separate groups.
        self._prefix = "python" if split == "train" else "python/" + split
        self._connection = connection
        self._place = place
        self._device = device
        self._max_ctas = max_ctas

    def data_group(self, module: str) -> Optional[Communicator]:
        """The module's data-parallel ranks. None if they exchange nothing."""
        job = self._connection.job()
        if job["delivery"] not in ("exchange", "hybrid"):
            return None
        # Only the first pipeline stage of an encoder receives any tensor.
        if is_encoder(module) and self._place.rank("pp_rank", module) != 0:
            return None
        return self._meet(job, module, "dp", ("tp_rank", "pp_rank", "cp_rank"))

    def tensor_group(self, module: str) -> Optional[Communicator]:
        """This rank's group of tensor ranks. None if there is no other tensor rank."""
        return self._meet(
            self._connection.job(), module, "tp", ("dp_rank", "pp_rank", "cp_rank")
        )

    def _meet(
        self, job: Mapping[str, Any], module: str, kind: str, lane: Sequence[str]
    ) -> Optional[Communicator]:
        """The group of the module's `kind` ranks that share this rank's numbers in
        `lane`."""
        size = next((m[kind] for m in job["modules"] if m["module"] == module), 1)
        if size <= 1:
            return None
        place = "/".join("%s%d" % (key[:2], self._place.rank(key, module)) for key in lane)
        return Communicator.meet(
            self._connection,
            "%s/%s/%s/%s" % (self._prefix, module, kind, place),
            self._place.rank(kind + "_rank", module),
            size,
            device=self._device,
            max_ctas=self._max_ctas,
        )
