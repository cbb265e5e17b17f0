"""The torch side of `exchange_embeddings`: an exchange that autograd can reverse."""

from __future__ import annotations

import collections
import math
from typing import Any, Deque, List, Tuple

import torch
import torch.distributed as dist

from .errors import FailedPrecondition, InvalidArgument


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
    """The plan of one all-to-all, and the exchange while it is under way."""

    def __init__(self, send: List[int], receive: List[int], order: Any, group: Any) -> None:
        self.send = send
        self.receive = receive
        self.order = order
        self.group = group
        self.work: Any = None
        self.sent: Any = None  # stays alive until the work is done
        self.gradient = False

    def start(self, rows: Any) -> Any:
        """The memory of the rows that arrive."""
        self.sent = rows.contiguous()
        received = rows.new_empty((sum(self.receive), *rows.shape[1:]))
        self.work = dist.all_to_all_single(
            received, self.sent, self.receive, self.send, group=self.group, async_op=True
        )
        return received

    def give_back(self, grad: Any) -> Any:
        """The gradient of the argument of `start`, from the gradient of its result."""
        back = grad.new_empty((sum(self.send), *grad.shape[1:]))
        dist.all_to_all_single(back, grad.contiguous(), self.send, self.receive, group=self.group)
        return back

    def wait(self) -> None:
        self.work.wait()
        self.work = self.sent = None


def start(rows: Any, plan: Any, frozen: bool) -> Any:
    """Starts the exchange; its result may be read only by `finish`."""
    if torch.is_grad_enabled() and not frozen and not rows.requires_grad:
        # This rank's tower needs no gradient, for example because it has no images.
        # Others' towers do, so it takes part in the reverse exchange.
        rows = rows.detach().requires_grad_()
    plan.gradient = torch.is_grad_enabled() and rows.requires_grad
    return _Start.apply(rows, plan)


def finish(received: Any, plan: Any) -> Any:
    return _Finish.apply(received, plan)


class _Start(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Any, plan: Any) -> Any:
        ctx.plan = plan
        return plan.start(rows)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return ctx.plan.give_back(grad), None


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, received: Any, plan: Any) -> Any:
        ctx.plan = plan
        plan.wait()
        # A rank that only sends has no text.
        return received.clone() if plan.order is None else received.index_select(0, plan.order)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        order = ctx.plan.order
        if order is None:
            return grad, None
        # Each received row belongs to one placeholder.
        return torch.empty_like(grad).index_copy_(0, order, grad), None


# ---- modules on separate ranks

# Sends that are under way on a rank, at most: then it waits for the oldest.
_MOST_SENDS = 64
# Numbers that precede the rows of each peer: step, micro-batch, rows, elements of a row, its
# type as below, and whether gradients come back.
_HEADER = 6
_TYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


class Lanes:
    """The process groups of the ranks of both modules, and what is under way on them."""

    def __init__(self, ranks: List[int], timeout: Any) -> None:
        self.rank = dist.get_rank()
        self.forward = dist.new_group(ranks, timeout=timeout)
        self.backward = dist.new_group(ranks, timeout=timeout)
        if self.rank in ranks:  # all of them connect here, not in the first step
            for group in (self.forward, self.backward):
                dist.barrier(group=group)
        self._last: Tuple[int, int] = (-1, -1)
        self._unreturned: Deque[Tuple[int, int]] = collections.deque()
        self._sends: Deque[Tuple[List[Any], Any]] = collections.deque()

    def begin(self, place: Tuple[int, int], gradient: bool) -> None:
        """Raises FailedPrecondition unless the micro-batch `place` follows the last one."""
        step, micro_batch = self._last
        if place[1] != 0 and place != (step, micro_batch + 1):
            raise FailedPrecondition(
                "embeddings: found step %d micro-batch %d after step %d micro-batch %d; wanted "
                "every micro-batch of a step, in order: other ranks exchange them so"
                % (*place, *self._last)
            )
        self._last = place
        if gradient:
            self._unreturned.append(place)

    def give_back(self, place: Tuple[int, int]) -> None:
        """Raises FailedPrecondition unless `place` is the first whose gradients are due."""
        if not self._unreturned or self._unreturned[0] != place:
            raise FailedPrecondition(
                "embeddings: found the backward pass of step %d micro-batch %d; wanted %s: "
                "backward passes run in the order of the forward passes, one for each micro-batch"
                % (*place, "step %d micro-batch %d" % self._unreturned[0]
                   if self._unreturned else "none")
            )  # fmt: skip
        self._unreturned.popleft()

    def forget(self) -> None:
        self._unreturned.clear()

    def hold(self, works: List[Any], memory: Any) -> None:
        """Keeps the memory of sends until they are done."""
        self._sends.append((works, memory))
        while self._sends and (
            len(self._sends) > _MOST_SENDS or all(work.is_completed() for work in self._sends[0][0])
        ):
            for work in self._sends.popleft()[0]:
                work.wait()


class ApartPlan:
    """The exchange of one micro-batch between a rank of one module and all of the other."""

    def __init__(
        self, lanes: Lanes, place: Tuple[int, int], peers: List[int], send: List[int],
        receive: List[int], order: Any,
    ) -> None:  # fmt: skip
        self.lanes = lanes
        self.place = place
        self.peers = peers
        self.counts = send or receive
        self.sends = bool(send)
        self.order = order
        self.gradient = False
        self._arriving: Any = None

    def start(self, rows: Any) -> Any:
        """Sends the rows and returns none; or the memory of the rows that arrive."""
        if rows.dtype not in _TYPES:
            raise InvalidArgument("embeddings: found %s; wanted one of %s" % (rows.dtype, _TYPES))
        self.lanes.begin(self.place, self.gradient)
        if self.sends:
            self._send(rows, self.lanes.forward)
            return rows.new_empty((0, *rows.shape[1:]))
        return self._receive(rows, self.lanes.forward)

    def give_back(self, grad: Any) -> Any:
        """The gradient of the argument of `start`, from the gradient of its result."""
        self.lanes.give_back(self.place)
        if not self.sends:
            self._send(grad, self.lanes.backward)
            return grad.new_empty((0, *grad.shape[1:]))
        back = self._receive(grad, self.lanes.backward)
        self.wait()
        return back

    def wait(self) -> None:
        """Waits for the rows that arrive, and checks whose they are."""
        if self._arriving is None:
            return
        (works, found, rows), self._arriving = self._arriving, None
        wanted = self._headers(rows)
        if rows.is_cuda:  # without a wait on the host
            for work in works:
                work.wait()
            torch._assert_async(
                (found == wanted).all(),
                "ballast: embeddings of another micro-batch or another type arrived",
            )
            return
        for work in works[: len(self.peers)]:
            work.wait()
        for peer, got, due in zip(self.peers, found.tolist(), wanted.tolist()):
            if got != due:
                raise FailedPrecondition(_difference(peer, got, due))
        for work in works[len(self.peers) :]:
            work.wait()

    def _headers(self, rows: Any) -> Any:
        """[peers, 6] int64 on the device of the rows."""
        kind = (math.prod(rows.shape[1:]), _TYPES.index(rows.dtype), self.gradient)
        headers = [[*self.place, count, *kind] for count in self.counts]
        return torch.tensor(headers, dtype=torch.int64).to(rows.device, non_blocking=True)

    def _send(self, rows: Any, group: Any) -> None:
        rows, headers = rows.contiguous(), self._headers(rows)
        self.lanes.hold(self._post(dist.isend, headers, rows, group), (rows, headers))

    def _receive(self, like: Any, group: Any) -> Any:
        rows = like.new_empty((sum(self.counts), *like.shape[1:]))
        headers = torch.empty((len(self.peers), _HEADER), dtype=torch.int64, device=rows.device)
        self._arriving = (self._post(dist.irecv, headers, rows, group), headers, rows)
        return rows

    def _post(self, move: Any, headers: Any, rows: Any, group: Any) -> List[Any]:
        """Posts all headers, then the rows that there are."""
        parts = zip([*headers, *rows.split(self.counts)], self.peers * 2)
        return list(
            dist.batch_isend_irecv(
                [dist.P2POp(move, part, peer, group) for part, peer in parts if len(part)]
            )
        )


def _difference(peer: int, got: List[int], due: List[int]) -> str:
    def said(header: List[int]) -> str:
        kind, gradient = header[-2:]
        return "step %d micro-batch %d, %d rows of %d elements, %s, gradients %s" % (
            *header[:-2], _TYPES[kind], "wanted" if gradient else "not wanted",
        )  # fmt: skip

    return (
        "embeddings from rank %d: found %s; wanted %s: both modules exchange every micro-batch, "
        "in order, in one type, and both or neither are `frozen`" % (peer, said(got), said(due))
    )
