"""Megatron-Core's communicators with embedding plans; imported where it is installed."""

from __future__ import annotations

import collections
from typing import Any, Deque, Dict, List, Tuple

import torch
import torch.distributed as dist
from megatron.core.pipeline_parallel.bridge_communicator import (  # type: ignore
    BridgeCommunicator,
)
from megatron.core.pipeline_parallel.multimodule_communicator import (  # type: ignore
    MultiModulePipelineCommunicator,
)

from ..embeddings import ModuleGroups, counts_of, order_of
from ..errors import FailedPrecondition


class SplitPipelineCommunicator(MultiModulePipelineCommunicator):  # type: ignore[misc]
    """MultiModulePipelineCommunicator over a SplitBridge for each encoder."""

    def __init__(self, batches: Any, encoders: Dict[str, str], *arguments: Any) -> None:
        #: What the schedule's data_iterator is.
        self.batches = batches
        self._encoders = encoders
        super().__init__(*arguments)

    def _build_bridge_comms(self) -> None:
        for source, encoder in self._encoders.items():
            (to,) = self.topology[source]
            grid = self.module_to_grid_map[source]
            stages = grid.shape[grid.dim_names.index("pp")]
            if stages != 1:
                raise FailedPrecondition(
                    "topology: found %s in %d pipeline stages; wanted 1: the plan of its rows is "
                    "with its media" % (source, stages)
                )
            self.bridge_comms.append(
                SplitBridge(
                    self, encoder, grid, self.module_to_grid_map[to], self.dim_mapping,
                    self.config.pipeline_dtype, source, to, 2,
                )
            )  # fmt: skip


class SplitBridge(BridgeCommunicator):  # type: ignore[misc]
    """BridgeCommunicator whose rows go by an encoder's plans in the pipeline's batches. The
    leader of the tensor ranks exchanges, and the others get its rows."""

    def __init__(self, pipeline: SplitPipelineCommunicator, encoder: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._pipeline = pipeline
        self._encoder = encoder
        self._groups = ModuleGroups(
            **{encoder: self.src_tp_leaders, "language": self.dest_tp_leaders}
        )
        # Of the micro-batches whose gradients are due: the plan, on the leader alone, numbers
        # of rows, and the order of those that arrived.
        self._due: Deque[Tuple[Any, List[int], Any]] = collections.deque()

    def build_comm_map(self, src_tp_leaders: Any, dest_tp_leaders: Any) -> None:
        """Nothing: every leader of one module exchanges with every leader of the other."""

    def send_forward(self, tensor_to_send: Any) -> None:
        plan, counts, _ = self._begin(self._pipeline.batches.taken, sends=True)
        if len(tensor_to_send) != sum(counts):
            raise FailedPrecondition(
                "embeddings of %s: found %d rows; wanted %d, one for each token of the batch's media"
                % (self._encoder, len(tensor_to_send), sum(counts))
            )
        if plan is not None:
            plan.start(tensor_to_send.detach())

    def recv_forward(self) -> Any:
        batch = self._pipeline.batches.peek()
        plan, _, order = self._begin(batch, sends=False)
        rows = self._rows(len(order))
        if plan is not None:
            received = plan.start(self._rows(0))
            plan.wait()
            rows = received.index_select(0, order)
        self._share(rows, self.dest_local_leader_rank, self.dest_grid_broadcast_pg)
        return rows.requires_grad_()

    def send_backward(self, grad_tensor: Any) -> None:
        plan, _, order = self._due.popleft()
        if plan is not None:
            plan.give_back(torch.empty_like(grad_tensor).index_copy_(0, order, grad_tensor))

    def recv_backward(self) -> Any:
        plan, counts, _ = self._due.popleft()
        rows = self._rows(sum(counts))
        if plan is not None:
            rows = plan.give_back(self._rows(0))
        self._share(rows, self.src_local_leader_rank, self.src_grid_broadcast_pg)
        return rows

    def send_forward_recv_backward(self, tensor_to_send: Any, grad_shape: Any = None) -> Any:
        self.send_forward(tensor_to_send)
        return self.recv_backward()

    def send_backward_recv_forward(self, grad_tensor: Any, forward_shape: Any = None) -> Any:
        self.send_backward(grad_tensor)
        return self.recv_forward()

    def _begin(self, batch: Any, sends: bool) -> Tuple[Any, List[int], Any]:
        if batch.micro_batch == 0:
            # Schedules do not run two steps at a time: what is left had no backward pass.
            self._due.clear()
            self._groups.forget()
        send, receive = counts_of(batch, self._encoder)
        plan, counts, order = None, send if sends else receive, None
        if not sends:
            order = order_of(batch, self._encoder, self._rows(0), self._pipeline.batches.videos)
        if self.current_rank in (self.src_local_leader_rank, self.dest_local_leader_rank):
            plan = self._groups.plan(batch, send, receive, order)
            plan.gradient = torch.is_grad_enabled()
        self._due.append((plan, counts, order))
        return self._due[-1]

    def _rows(self, count: int) -> Any:
        width = self._pipeline.config.hidden_size
        return torch.empty((count, width), dtype=self.comm_dtype, device=_device())

    def _share(self, rows: Any, leader: int, group: Any) -> None:
        """Fills the rows of the leader's tensor peers with the leader's."""
        if dist.get_world_size(group) > 1:
            dist.broadcast(rows, src=leader, group=group)


def _device() -> Any:
    return torch.cuda.current_device()
