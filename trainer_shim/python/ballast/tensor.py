"""A batch of the library: its samples, its totals and its memory as arrays, without a copy."""

from __future__ import annotations

import ctypes
import itertools
import json
from ctypes import c_void_p
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _abi, _structs
from .errors import FailedPrecondition, InvalidArgument, Unimplemented


@dataclass(frozen=True)
class Sample:
    """One sample of a batch."""

    name: str  #: "SOURCE:ORDINAL"
    source: int  #: number of the source in the configuration
    ordinal: int  #: number of the sample in the source's index
    position: int  #: place in the global order
    #: The sample could not be read. Grey images and unsupervised tokens replace it. On
    #: a GPU this is known only after the device has packed the batch.
    placeholder: bool
    #: The sample has occurred before in this pass over `valid` or `test`, and fills up a
    #: step: nothing of it is supervised.
    repeated: bool = False


@dataclass(frozen=True)
class Totals:
    """Exact sums over samples. `padded_` sums use each sample's aligned length."""

    samples: int
    tokens: int
    tokens_squared: int  #: sum of the squares of the samples' lengths
    padded_tokens: int
    padded_tokens_squared: int
    label_tokens: int  #: tokens that the loss counts
    patches: int  #: of images and videos
    images: int  #: without videos
    videos: int
    clips: int = 0  #: of audio
    frames: int = 0  #: of them that count


class Part:
    """One module's batch, which the library keeps until the part is deleted.

    The batch and every array made from the part refer to it, so the memory lasts as
    long as any of them. The part may be deleted on any thread.

    Args:
        handle: with one reference, which the part takes over.
    """

    def __init__(self, handle: c_void_p) -> None:
        self._handle = handle
        # At hand for a part that is deleted while the interpreter exits and empties modules.
        self._release = _abi.library().ballast_batch_release
        #: Names of the arrays that still refer to the memory, one entry each.
        #: Single dictionary operations are atomic, so any thread may drop an array.
        self.held: Dict[int, str] = {}
        self._keys = itertools.count()
        self.info = _abi.fill(_structs.BatchInfo, "ballast_batch_get_info", handle)

    def hold(self, name: str) -> Callable[[], None]:
        """Notes an array over the part's memory. Call the result when the array is
        gone; it keeps the part alive until then."""
        key = next(self._keys)
        self.held[key] = name

        def release() -> None:
            self.held.pop(key, None)

        return release

    def __del__(self) -> None:
        self._release(self._handle)

    def __str__(self) -> str:
        names = ", ".join(sorted(set(self.held.values()))) or "the Batch object"
        return "step %d, micro-batch %d (%s)" % (self.info.step, self.info.micro_batch, names)

    def record_stream(self, stream: Optional[int]) -> None:
        """Delays reuse of the memory until the stream's present work is done."""
        _abi.check(_abi.library().ballast_batch_record_stream(self._handle, stream))

    def tensors(self) -> List[_structs.Tensor]:
        return [
            _abi.fill(_structs.Tensor, "ballast_batch_get_tensor", self._handle, i)
            for i in range(self.info.num_tensors)
        ]

    def bounds(self) -> Tuple[int, ...]:
        """The number of samples, and the positions of the first and the last. Samples
        are in the order of the schedule, so two modules have the same samples if these
        are equal."""
        count = self.info.num_samples
        ends = (0, count - 1) if count else ()
        return (count, *(self._sample(i).position for i in ends))

    def _sample(self, number: int) -> _structs.Sample:
        return _abi.fill(_structs.Sample, "ballast_batch_get_sample", self._handle, number)

    def samples(self) -> List[Sample]:
        found = []
        for i in range(self.info.num_samples):
            raw = self._sample(i)
            found.append(
                Sample(
                    name=raw.name.decode(),
                    source=raw.source,
                    ordinal=raw.ordinal,
                    position=raw.position,
                    placeholder=bool(raw.placeholder),
                )
            )
        return found

    def totals(self, of: int) -> Totals:
        """`of`: 0 this rank's samples, 1 the micro-batch's, 2 the step's."""
        raw = _abi.fill(_structs.Totals, "ballast_batch_get_totals", self._handle, of)
        return Totals(*(getattr(raw, name) for name in Totals.__dataclass_fields__))

    def digest(self, stream: Optional[int]) -> str:
        text = ctypes.create_string_buffer(33)
        _abi.check(_abi.library().ballast_batch_digest(self._handle, stream, text))
        return text.value.decode()


class ClonedPart:
    """What is known of a part whose batch was cloned, for checks: it has no memory."""

    def __init__(self, part: Union[Part, ClonedPart]) -> None:
        self.info: _structs.BatchInfo = part.info
        self._bounds = part.bounds()

    def bounds(self) -> Tuple[int, ...]:
        return self._bounds

    def record_stream(self, stream: Optional[int]) -> None:
        """Nothing: no memory is reused."""

    def digest(self, stream: Optional[int]) -> str:
        raise InvalidArgument("digest: a clone has none; ask the batch it was made of")


def check_same_samples(parts: Sequence[Union[Part, ClonedPart]]) -> None:
    """Refuses parts of an encoder and of language, the last, that have different samples."""
    if not parts or parts[-1].info.module != _structs.MODULES["language"]:
        return
    for part in parts[:-1]:
        if part.bounds() == parts[-1].bounds():
            continue
        encoder, language = part.info, parts[-1].info
        module, media = "vision", "images"
        if encoder.module == _structs.MODULES["audio"]:
            module, media = "audio", "clips"
        raise FailedPrecondition(
            "found the %s of %d samples (%s rank %d) and the text of %d (language rank "
            "%d), which are not the same samples, where a rank's own %s go into its text: "
            "give both modules the same dp, and this process the same dp_rank in both"
            % (media, encoder.num_samples, module, encoder.dp_rank, language.num_samples,
               language.dp_rank, media)
        )  # fmt: skip


@dataclass(frozen=True)
class TensorRow:
    """A tensor that batches can have, as the library's table describes it."""

    name: str
    dtype: str  #: such as "int64"; "float32 or bfloat16" for pixels
    shape: str  #: in the letters of docs/thd_format.md, such as "[C, 2]"
    receivers: str  #: module and pipeline stages, such as "language, first stage"
    #: How samples form the tensor: "tokens", "sums", "items", "padded items", "ranks" or
    #: "sequences".
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
    tensor is dense, row-major and read-only. It is on the GPU; tensors whose names end
    in `_host`, and all tensors of a loader with `device="cpu"`, are in host memory.
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
        return _capsule_of(
            self.data, self.dtype, self.shape, self.device, self._part.hold(self.name)
        )

    def numpy(self) -> Any:
        """A read-only NumPy array over the same host memory. bfloat16 appears as
        uint16, which holds its bits."""
        import numpy

        if not self.on_host:
            raise InvalidArgument(
                '%s is on a GPU; NumPy arrays need a loader with device="cpu"' % self.name
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


# DLPack capsules by ctypes.

_KDL_INT = 0
_KDL_UINT = 1
_KDL_FLOAT = 2
_KDL_BFLOAT = 4
_KDL_BOOL = 6
_TYPES = {
    "uint8": (_KDL_UINT, 8),
    "int32": (_KDL_INT, 32),
    "int64": (_KDL_INT, 64),
    "float32": (_KDL_FLOAT, 32),
    "bfloat16": (_KDL_BFLOAT, 16),
    "bool": (_KDL_BOOL, 8),
}


class _Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _ManagedTensor(ctypes.Structure):
    _fields_ = [
        ("dl_tensor", _Tensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", _Deleter),
    ]


# For each address: the data that the consumer of a capsule may read until it calls the
# deleter. The last element is the function to call then.
_alive: Dict[int, Tuple[Any, ...]] = {}


def _delete(address: int) -> None:
    entry = _alive.pop(address, None)
    if entry is not None:
        entry[-1]()


_deleter = _Deleter(_delete)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_new = _api.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, _Destructor]
# These take the bare pointer: in a destructor the capsule's reference count is 0,
# and must not be raised and lowered again.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_NAME = b"dltensor"


def _destroy(capsule: int) -> None:
    # A consumer renames the capsule. If it still has the old name, there was no
    # consumer.
    if _is_valid(capsule, _NAME):
        _delete(_get_pointer(capsule, _NAME))


_destructor = _Destructor(_destroy)


def _capsule_of(
    address: int,
    dtype: str,
    shape: Tuple[int, ...],
    device: Tuple[int, int],
    on_release: Callable[[], None],
) -> Any:
    """A capsule named "dltensor" over memory that `on_release` keeps alive.

    `on_release` is called once, on any thread, when nothing refers to the memory
    through the capsule any more.
    """
    code, bits = _TYPES[dtype]
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    steps = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        steps[i] = steps[i + 1] * max(shape[i + 1], 1)
    strides = (ctypes.c_int64 * len(shape))(*steps)
    managed = _ManagedTensor()
    tensor = managed.dl_tensor
    tensor.data = address
    tensor.device = _Device(*device)
    tensor.ndim = len(shape)
    tensor.dtype = _DataType(code, bits, 1)
    tensor.shape = sizes
    tensor.strides = strides
    tensor.byte_offset = 0
    managed.deleter = _deleter
    key = ctypes.addressof(managed)
    _alive[key] = (managed, sizes, strides, on_release)
    return _new(key, _NAME, _destructor)
