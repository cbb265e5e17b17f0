"""A batch's memory as arrays of other libraries, without a copy."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, List, Optional, Tuple

from . import _abi, _structs
from ._dlpack import capsule_of
from ._part import Part
from .errors import InvalidArgument, Unimplemented


@dataclasses.dataclass(frozen=True)
class TensorRow:
    """A tensor that batches can have, as the library's table describes it."""

    name: str
    dtype: str  #: such as "int64"; "float32 or bfloat16" for pixels
    shape: str  #: in the letters of docs/thd_format.md, such as "[C, 2]"
    receivers: str  #: module and pipeline stages, such as "language, first stage"
    #: How samples form it: "tokens", "sums", "items", "padded items" or "ranks".
    joins: str
    #: "packed", "listed" (with a copy in host memory, NAME_host), "listed once"
    #: (without), or "host" (in host memory alone).
    memory: str
    contents: str


def tensor_table() -> List[TensorRow]:
    """Every tensor that a batch can have, in the order in which batches list them."""
    return [TensorRow(**row) for row in json.loads(_abi.take_bytes("ballast_tensor_table"))]


class Tensor:
    """One named tensor of a batch, for any library that understands DLPack.

    `torch.from_dlpack(tensor)` and `cupy.from_dlpack(tensor)` make no copy. The
    tensor is dense, row-major and read-only. It lies on the GPU; names that end in
    `_host`, and all tensors of a loader with `device="cpu"`, lie in host memory.
    """

    def __init__(self, raw: _structs.Tensor, part: Part) -> None:
        self.name: str = raw.name.decode()
        self.dtype: str = _structs.DTYPES.get(raw.dtype, "")
        self.shape: Tuple[int, ...] = tuple(raw.shape[: raw.ndim])
        #: Address of the first element; 0 if there is none.
        self.data: int = raw.data or 0
        #: DLPack's numbers: (1, 0) for host memory, (2, N) for GPU N.
        self.device: Tuple[int, int] = (raw.device_type, raw.device_id)
        self._part = part
        if not self.dtype:
            raise Unimplemented(
                "%s has elements of type %d, which this package does not know: the "
                "library is newer. Install both from one wheel" % (self.name, raw.dtype)
            )

    def __repr__(self) -> str:
        return "<ballast.Tensor %s %s %s %s>" % (
            self.name, self.dtype, list(self.shape), self._torch_device(),
        )  # fmt: skip

    @property
    def on_host(self) -> bool:
        return self.device[0] == _structs.DEVICE_CPU

    def _torch_device(self) -> str:
        return "cpu" if self.on_host else "cuda:%d" % self.device[1]

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self.device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        # `stream` needs no work: the stream that was given to the loader's `next`
        # waits for the batch already.
        if copy or (dl_device is not None and tuple(dl_device) != self.device):
            raise BufferError(
                "%s is exported in place: ask for no copy and no other device" % self.name
            )
        return capsule_of(
            self.data, self.dtype, self.shape, self.device, self._part.hold(self.name)
        )

    def numpy(self) -> Any:
        """A read-only NumPy array over the same host memory. bfloat16 appears as
        uint16, which holds its bits."""
        import numpy

        if not self.on_host:
            raise InvalidArgument(
                '%s lies on a GPU; NumPy arrays need a loader with device="cpu"' % self.name
            )
        kind = numpy.dtype("uint16" if self.dtype == "bfloat16" else self.dtype)
        if 0 in self.shape:
            return numpy.empty(self.shape, kind)
        return numpy.asarray(_Exposed(self, kind.str))

    def torch(self) -> Any:
        """A torch tensor over the same memory."""
        import torch
        import torch.utils.dlpack

        if 0 in self.shape:
            kind = getattr(torch, self.dtype)
            return torch.empty(self.shape, dtype=kind, device=self._torch_device())
        return torch.utils.dlpack.from_dlpack(self)


class _Exposed:
    """The base of a NumPy array: holds the memory until the array is gone."""

    def __init__(self, tensor: Tensor, kind: str) -> None:
        self._release = tensor._part.hold(tensor.name)
        self.__array_interface__ = {
            "version": 3,
            "data": (tensor.data, True),
            "shape": tensor.shape,
            "typestr": kind,
        }

    def __del__(self) -> None:
        self._release()
