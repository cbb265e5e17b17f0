"""One rank's end of the group that exchanges samples."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from typing import Any, List, Optional

from . import _abi
from .connection import Connection, Servers
from .errors import InvalidArgument


class Communicator:
    """A rank's end of the group of all data-parallel ranks of its module.

    Needed where the job's delivery is `exchange` and the module has more than one
    rank. A loader with `device="cuda"` makes its own through the job's servers;
    make one here to use another way. A loader takes it over. Over NCCL all ranks
    of the group make theirs at the same time: the calls wait for each other.
    """

    def __init__(self, handle: c_void_p, rank: int, size: int) -> None:
        self._handle: Optional[c_void_p] = handle
        self.rank = rank
        self.size = size

    @staticmethod
    def in_process(size: int, backend: str = "host") -> List[Communicator]:
        """The ends of a group whose ranks are threads of this process."""
        numbers = {"host": _abi.BACKEND_HOST, "cuda": _abi.BACKEND_CUDA}
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
        device: int,
        timeout: float = 300.0,
        max_ctas: int = 0,
    ) -> Communicator:
        """Over NCCL, met through the first loader server: no MPI, no address.

        `group` names the ranks that meet, in the whole job. `max_ctas` bounds the
        thread blocks that an exchange takes from the device.
        """
        handle = c_void_p()
        _abi.check(
            _abi.library().ballast_communicator_nccl_meet(
                byref(Connection.of(servers).raw()),
                group.encode(),
                rank,
                size,
                timeout,
                byref(_nccl(device, max_ctas)),
                byref(handle),
            )
        )
        return Communicator(handle, rank, size)

    @staticmethod
    def from_id(
        nccl_id: bytes, rank: int, size: int, *, device: int, max_ctas: int = 0
    ) -> Communicator:
        """Over NCCL, from the id (`new_id`) that one rank has handed to all."""
        if len(nccl_id) != _abi.NCCL_ID_BYTES:
            raise InvalidArgument(
                "nccl_id: found %d bytes; wanted %d" % (len(nccl_id), _abi.NCCL_ID_BYTES)
            )
        handle = c_void_p()
        _abi.check(
            _abi.library().ballast_communicator_nccl(
                nccl_id, rank, size, byref(_nccl(device, max_ctas)), byref(handle)
            )
        )
        return Communicator(handle, rank, size)

    @staticmethod
    def new_id() -> bytes:
        """An ncclUniqueId, for one rank to hand to the others."""
        _abi.load_nccl()
        text = ctypes.create_string_buffer(_abi.NCCL_ID_BYTES)
        _abi.check(_abi.library().ballast_nccl_id(text))
        return text.raw

    @staticmethod
    def borrow(
        nccl_comm: int, rank: int, size: int, *, device: int, max_ctas: int = 0
    ) -> Communicator:
        """Split off the trainer's own ncclComm_t (its address) of the same ranks,
        which stays the trainer's."""
        handle = c_void_p()
        _abi.check(
            _abi.library().ballast_communicator_nccl_borrow(
                nccl_comm, byref(_nccl(device, max_ctas)), byref(handle)
            )
        )
        return Communicator(handle, rank, size)

    @staticmethod
    def from_process_group(
        group: Any = None, *, device: Optional[int] = None, max_ctas: int = 0
    ) -> Communicator:
        """Over NCCL, of the ranks of a torch.distributed group (None: the default
        one), whose rank 0 hands out the id. All its ranks call it."""
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
            raise InvalidArgument("this communicator was closed or given to a loader before")
        handle, self._handle = self._handle, None
        return handle

    def close(self) -> None:
        """Leaves the group. Nothing happens where a loader has taken it over."""
        if self._handle is not None:
            _abi.library().ballast_communicator_destroy(self._take())

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and _abi is not None:
            self.close()


def _nccl(device: int, max_ctas: int) -> _abi.NcclOptions:
    _abi.load_nccl()
    options = _abi.sized(_abi.NcclOptions)
    options.device = device
    options.max_ctas = max_ctas
    return options
