"""A rank's communicator: its end of the group that exchanges samples."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from typing import Any, List, Optional

from . import _abi, _structs
from ._waiting import interruptible
from .connection import Connection, Servers
from .errors import InvalidArgument


class Communicator:
    """A rank's end of the group of all data-parallel ranks of its module.

    A module with more than one rank needs it if the job's delivery is `exchange` or
    `hybrid`. A loader that exchanges makes its own communicator through the job's
    servers; make one here to connect in another way. The loader takes it over. All
    ranks of a group that meet must make theirs at the same time: the calls wait for
    each other.
    """

    def __init__(self, handle: c_void_p, rank: int, size: int) -> None:
        self._handle: Optional[c_void_p] = handle
        self.rank = rank
        self.size = size

    @staticmethod
    def in_process(size: int, backend: str = "host") -> List[Communicator]:
        """The ends of a group whose ranks are threads of this process."""
        numbers = {"host": _structs.BACKEND_HOST, "cuda": _structs.BACKEND_CUDA}
        if backend not in numbers:
            raise InvalidArgument('backend: found %r; wanted "host" or "cuda"' % (backend,))
        ends = (c_void_p * max(size, 1))()
        call = _abi.library().ballast_communicator_in_process
        _abi.check(call(numbers[backend], size, ends))
        return [Communicator(c_void_p(end), rank, size) for rank, end in enumerate(ends)]

    @staticmethod
    def meet(
        servers: Servers,
        group: str,
        rank: int,
        size: int,
        *,
        device: Optional[int],
        timeout: float = 300.0,
        max_ctas: int = 0,
    ) -> Communicator:
        """Joins a group over NCCL, or over Gloo without a GPU, through the first loader
        server that serves.

        Needs neither MPI nor an address. Waits up to `timeout` seconds for the other
        ranks, and as long again for each of NCCL's two steps of connecting.

        Args:
            group: name of the group, unique in the job.
            device: this rank's GPU; None to exchange in host memory, over Gloo.
            max_ctas: limit of thread blocks that an exchange takes from the device.
        """
        connection = Connection.of(servers).raw()
        if device is None:
            meeting = (byref(connection), group.encode(), rank, size, timeout)
            return interruptible(
                lambda: Communicator(
                    _abi.make("ballast_communicator_gloo_meet", *meeting), rank, size
                )
            )
        return _over_nccl(
            "ballast_communicator_nccl_meet",
            (byref(connection), group.encode(), rank, size, timeout),
            rank, size, device, max_ctas,
        )  # fmt: skip

    @staticmethod
    def from_id(
        nccl_id: bytes, rank: int, size: int, *, device: int, max_ctas: int = 0
    ) -> Communicator:
        """Joins a group over NCCL by the id that one rank made with `new_id`."""
        if len(nccl_id) != _structs.NCCL_ID_BYTES:
            raise InvalidArgument(
                "nccl_id: found %d bytes; wanted %d" % (len(nccl_id), _structs.NCCL_ID_BYTES)
            )
        return _over_nccl(
            "ballast_communicator_nccl", (nccl_id, rank, size), rank, size, device, max_ctas
        )

    @staticmethod
    def new_id() -> bytes:
        """An ncclUniqueId, which one rank makes and hands to the others."""
        _abi.load_nccl()
        text = ctypes.create_string_buffer(_structs.NCCL_ID_BYTES)
        _abi.check(_abi.library().ballast_nccl_id(text))
        return text.raw

    @staticmethod
    def borrow(
        nccl_comm: int, rank: int, size: int, *, device: int, max_ctas: int = 0
    ) -> Communicator:
        """Splits the group off the trainer's own ncclComm_t, given by its address.

        The ranks are the same. The original stays the trainer's.
        """
        return _over_nccl(
            "ballast_communicator_nccl_borrow", (nccl_comm,), rank, size, device, max_ctas
        )

    @staticmethod
    def from_process_group(
        group: Any = None, *, device: Optional[int] = None, max_ctas: int = 0
    ) -> Communicator:
        """Joins the ranks of a torch.distributed group over NCCL.

        All its ranks call this. Rank 0 hands out the id.

        Args:
            group: None for the default group.
            device: None for torch's current device.
        """
        import torch
        import torch.distributed as dist

        rank, size = dist.get_rank(group), dist.get_world_size(group)
        box = [Communicator.new_id() if rank == 0 else None]
        source = dist.get_global_rank(group, 0) if group is not None else 0
        dist.broadcast_object_list(box, src=source, group=group)
        if device is None:
            device = torch.cuda.current_device()
        nccl_id = box[0]
        assert nccl_id is not None
        return Communicator.from_id(nccl_id, rank, size, device=device, max_ctas=max_ctas)

    def _take(self) -> c_void_p:
        if self._handle is None:
            raise InvalidArgument(
                "this communicator was closed or given to a loader before; make a new one"
            )
        handle, self._handle = self._handle, None
        return handle

    def close(self) -> None:
        """Leaves the group. Does nothing once a loader has taken it over."""
        if self._handle is not None:
            _abi.library().ballast_communicator_destroy(self._take())

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and _abi is not None:
            self.close()


def _over_nccl(
    name: str, arguments: Any, rank: int, size: int, device: int, max_ctas: int
) -> Communicator:
    """Calls one of the functions that join a group over NCCL."""
    _abi.load_nccl()
    options = _structs.sized(_structs.NcclOptions)
    options.device = device
    options.max_ctas = max_ctas

    def join() -> Communicator:
        return Communicator(_abi.make(name, *arguments, byref(options)), rank, size)

    return interruptible(join)
