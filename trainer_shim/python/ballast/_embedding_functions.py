"""The torch side of `exchange_embeddings`: an all-to-all that autograd can reverse."""

from __future__ import annotations

from typing import Any, List

import torch
import torch.distributed as dist

from .errors import InvalidArgument


def check_group(group: Any, ranks: int, rank: int) -> None:
    """Raises InvalidArgument if the group is not the group of the data-parallel
    ranks."""
    size, own = dist.get_world_size(group), dist.get_rank(group)
    if size != ranks or rank not in (-1, own):
        raise InvalidArgument(
            "group: found rank %d of %d; wanted data-parallel rank %d of %d: pass the process "
            "group of the data-parallel ranks" % (own, size, own if rank < 0 else rank, ranks)
        )


class Plan:
    """The plan of one exchange, and the exchange while it is under way."""

    def __init__(self, send: List[int], receive: List[int], order: Any, group: Any) -> None:
        self.send = send
        self.receive = receive
        self.order = order
        self.group = group
        self.work: Any = None
        self.sent: Any = None  # stays alive until the work is done


def start(rows: Any, plan: Plan, frozen: bool) -> Any:
    """Starts the exchange; its result may be read only by `finish`."""
    if torch.is_grad_enabled() and not frozen and not rows.requires_grad:
        # This rank's tower needs no gradient, for example because it has no images.
        # Others' towers do, so it takes part in the reverse exchange.
        rows = rows.detach().requires_grad_()
    return _Start.apply(rows, plan)


def finish(received: Any, plan: Plan) -> Any:
    return _Finish.apply(received, plan)


class _Start(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Any, plan: Plan) -> Any:
        ctx.plan = plan
        plan.sent = rows.contiguous()
        received = rows.new_empty((sum(plan.receive), *rows.shape[1:]))
        plan.work = dist.all_to_all_single(
            received, plan.sent, plan.receive, plan.send, group=plan.group, async_op=True
        )
        return received

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        plan = ctx.plan
        back = grad.new_empty((sum(plan.send), *grad.shape[1:]))
        dist.all_to_all_single(
            back, grad.contiguous(), plan.send, plan.receive, group=plan.group
        )
        return back, None


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, received: Any, plan: Plan) -> Any:
        ctx.plan = plan
        plan.work.wait()
        plan.work = plan.sent = None
        return received.index_select(0, plan.order)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        # Each received row belongs to one placeholder.
        return torch.empty_like(grad).index_copy_(0, ctx.plan.order, grad), None
