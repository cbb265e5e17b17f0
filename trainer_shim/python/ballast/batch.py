"""What a rank trains on in one micro-batch."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from . import _abi
from ._dlpack import capsule_of
from .errors import BatchReleased, InvalidArgument, Unimplemented

if TYPE_CHECKING:
    _Base = Dict[str, Any]
else:
    _Base = dict


@dataclass(frozen=True)
class Sample:
    """Which sample stands in a place of a batch."""

    name: str  #: "SOURCE:ORDINAL"
    source: int  #: number of the source in the configuration
    ordinal: int  #: number in the source's index
    position: int  #: place in the global order
    #: It could not be read, and grey images and unsupervised tokens stand for
    #: it. On a GPU known only once the device has packed the batch.
    placeholder: bool


@dataclass(frozen=True)
class Totals:
    """Exact sums over samples. Padded ones count each at its aligned length."""

    samples: int
    tokens: int
    tokens_squared: int  #: sum of each sample's tokens squared
    padded_tokens: int
    padded_tokens_squared: int
    label_tokens: int  #: tokens that the loss counts
    patches: int
    images: int


class Live:
    """How many arrays still refer to a batch's memory. CPython's dictionary and
    integer operations under the interpreter's lock are all it needs."""

    def __init__(self) -> None:
        self.names: Dict[int, str] = {}
        self._next = 0

    def add(self, name: str) -> Callable[[], None]:
        key = self._next
        self._next += 1
        self.names[key] = name

        def release() -> None:
            self.names.pop(key, None)

        return release


class Tensor:
    """Memory of a batch under its name, for any library that takes DLPack.

    `torch.from_dlpack(tensor)`, `cupy.from_dlpack(tensor)`: no copy is made. It is
    dense and row-major, and lies on the GPU, or for names that end in `_host` and
    for loaders with `device="cpu"` in host memory. Not to be written to.
    """

    def __init__(self, raw: _abi.Tensor, live: Live) -> None:
        self.name: str = raw.name.decode()
        self.dtype: str = _abi.DTYPES.get(raw.dtype, "")
        self.shape: Tuple[int, ...] = tuple(raw.shape[: raw.ndim])
        #: Address; 0 where it has no elements.
        self.data: int = raw.data or 0
        #: (1, 0) for host memory, (2, N) for GPU N: DLPack's numbers.
        self.device: Tuple[int, int] = (raw.device_type, raw.device_id)
        self._live = live
        if not self.dtype:
            raise Unimplemented(
                "%s has elements of type %d, which this package does not know; "
                "the library is newer" % (self.name, raw.dtype)
            )

    def __repr__(self) -> str:
        place = "cuda:%d" % self.device[1] if self.device[0] == _abi.DEVICE_CUDA else "cpu"
        return "<ballast.Tensor %s %s %s %s>" % (self.name, self.dtype, list(self.shape), place)

    @property
    def on_host(self) -> bool:
        return self.device[0] == _abi.DEVICE_CPU

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self.device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Optional[bool] = None,
    ) -> Any:
        # `stream` is not looked at: what the loader's `next` was given already
        # waits for the batch.
        if copy or (dl_device is not None and tuple(dl_device) != self.device):
            raise BufferError("%s is given as it lies, without a copy" % self.name)
        return capsule_of(
            self.data, self.dtype, self.shape, self.device, self._live.add(self.name)
        )

    def numpy(self) -> Any:
        """A read-only NumPy array over the same memory; bfloat16 as the uint16
        of its bits. Host memory only."""
        import numpy

        if not self.on_host:
            raise InvalidArgument(
                "%s lies on a GPU; NumPy wants a loader with device=\"cpu\"" % self.name
            )
        kind = numpy.dtype("uint16" if self.dtype == "bfloat16" else self.dtype)
        if 0 in self.shape:
            return numpy.empty(self.shape, kind)
        owner = _Exposed(self, kind.str)
        return numpy.asarray(owner)

    def torch(self) -> Any:
        """A torch tensor over the same memory."""
        import torch
        import torch.utils.dlpack

        if 0 in self.shape:
            kind = getattr(torch, self.dtype)
            device = "cpu" if self.on_host else "cuda:%d" % self.device[1]
            return torch.empty(self.shape, dtype=kind, device=device)
        return torch.utils.dlpack.from_dlpack(self)


class _Exposed:
    """What a NumPy array keeps as its base."""

    def __init__(self, tensor: Tensor, kind: str) -> None:
        self._release = tensor._live.add(tensor.name)
        self.__array_interface__ = {
            "version": 3,
            "data": (tensor.data, True),
            "shape": tensor.shape,
            "typestr": kind,
        }

    def __del__(self) -> None:
        self._release()


class Batch(_Base):
    """A dictionary of tensors, and numbers that go with them.

    Keys of a language rank are `input_ids`, `labels` (already shifted), `loss_mask`
    [1, T], `position_ids` [3, 1, T] or [1, T], `cu_seqlens`, `cu_seqlens_padded`
    [n+1] and `max_seqlen` (an int); of a vision rank `pixel_values` [P, V],
    `image_grid_thw` [images, 3], `vision_cu_seqlens` and `vision_max_seqlen`. The
    small ones are there in host memory too, as `cu_seqlens_host` and so on.
    docs/thd_format.md explains them. A loader with both modules has both.

    **Lifetime.** The tensors are the loader's memory. They may be read by work
    that is given to the device before the loader's next batch is asked for, and
    are not copied: asking for the next batch empties this dictionary, and using a
    key afterwards raises BatchReleased. A tensor taken out of it still refers to
    that memory and must not be used then either. `clone()` makes a batch to keep.
    """

    step: int  #: optimizer step
    micro_batch: int  #: number within the step
    num_micro_batches: int  #: of the step, the same on every rank
    max_seqlen: int  #: longest padded sample; 0 without text
    vision_max_seqlen: int  #: longest attention segment of an image; 0 without
    #: The last image belongs to no sample: multiply what the vision tower makes
    #: of it by zero, so that gradients flow on every rank.
    dummy_image: bool
    bytes_read: int  #: of the blocks that were pulled
    bytes_moved: int  #: of what left for other ranks
    totals: Totals  #: of this rank's samples
    micro_batch_totals: Totals  #: of all ranks' in this micro-batch
    step_totals: Totals  #: of all ranks' in the step

    def __init__(self) -> None:
        super().__init__()
        self._parts: List[Part] = []
        self._released = False
        self._samples: Optional[List[Sample]] = None
        self._schedule: Optional[Callable[[], Any]] = None
        self._images: Optional[List[int]] = None

    def __missing__(self, key: str) -> Any:
        if self._released:
            raise BatchReleased(
                "the batch of step %d, micro-batch %d was released when the "
                "loader's next one was asked for; use it before, or clone() it"
                % (self.step, self.micro_batch)
            )
        raise KeyError(key)

    def get(self, key: str, default: Any = None) -> Any:
        if self._released:
            self.__missing__(key)
        return super().get(key, default)

    @property
    def released(self) -> bool:
        """Whether the loader has gone on, so that the tensors are gone."""
        return self._released

    @property
    def samples(self) -> List[Sample]:
        """The samples in the order in which they are packed."""
        if self._samples is None:
            if self._released:
                self.__missing__("samples")
            self._samples = self._parts[-1].samples()
        return self._samples

    @property
    def images_per_sample(self) -> List[int]:
        """How many images each of `samples` has, from the step's schedule."""
        if self._images is None:
            if self._released or self._schedule is None:
                self.__missing__("images_per_sample")
                raise AssertionError
            counts = {
                sample["position"]: sample["images"]
                for micro_batch in self._schedule()["micro_batches"]
                for sample in micro_batch["samples"]
            }
            self._images = [counts[sample.position] for sample in self.samples]
        return self._images

    def clone(self) -> Batch:
        """The same batch in memory of its own, to keep as long as one likes. On a
        GPU the copy is work for the current stream."""
        if self._released:
            self.__missing__("clone")
        copy = Batch()
        copy.__dict__.update(self.__dict__)
        copy._samples = list(self.samples)
        copy._parts = []
        for key, value in self.items():
            if isinstance(value, Tensor):
                raise InvalidArgument('a loader with array="dlpack" leaves copies to you')
            copy_of = getattr(value, "clone", None) or getattr(value, "copy", None)
            copy[key] = copy_of() if copy_of else value
        return copy

    def digest(self, stream: int = 0) -> str:
        """Of all tensors, for tests: equal batches have equal digests. Waits for
        the device. Two modules' digests are joined by "+"."""
        if self._released or not self._parts:
            self.__missing__("digest")
        return "+".join(part.digest(stream) for part in self._parts)

    def _release(self) -> List[str]:
        """Empties it; names of tensors that somebody still refers to."""
        self._released = True
        self.clear()
        held = [name for part in self._parts for name in part.live.names.values()]
        self._parts = []
        self._schedule = None
        return held


class Part:
    """One module's share of a batch, as the library gave it out."""

    def __init__(self, handle: int) -> None:
        self._handle = c_void_p(handle)
        self.live = Live()
        self.info = _abi.sized(_abi.BatchInfo)
        _abi.check(_abi.library().ballast_batch_get_info(self._handle, byref(self.info)))

    def tensors(self) -> List[Tensor]:
        call = _abi.library().ballast_batch_get_tensor
        found = []
        for i in range(self.info.num_tensors):
            raw = _abi.sized(_abi.Tensor)
            _abi.check(call(self._handle, i, byref(raw)))
            found.append(Tensor(raw, self.live))
        return found

    def samples(self) -> List[Sample]:
        call = _abi.library().ballast_batch_get_sample
        found = []
        for i in range(self.info.num_samples):
            raw = _abi.sized(_abi.Sample)
            _abi.check(call(self._handle, i, byref(raw)))
            found.append(
                Sample(raw.name.decode(), raw.source, raw.ordinal, raw.position, bool(raw.placeholder))
            )
        return found

    def totals(self, of: int) -> Totals:
        raw = _abi.sized(_abi.Totals)
        _abi.check(_abi.library().ballast_batch_get_totals(self._handle, of, byref(raw)))
        return Totals(*(getattr(raw, name) for name in Totals.__dataclass_fields__))

    def digest(self, stream: int) -> str:
        text = ctypes.create_string_buffer(33)
        _abi.check(_abi.library().ballast_batch_digest(self._handle, stream or None, text))
        return text.value.decode()


_INTEGERS = ("max_seqlen", "vision_max_seqlen")


def batch_of(
    parts: List[Part], to_array: Callable[[Tensor], Any], schedule: Callable[[], Any]
) -> Batch:
    """One dictionary of the parts of one micro-batch, vision before language."""
    batch = Batch()
    batch._parts = parts
    batch._schedule = schedule
    info = parts[-1].info
    for key in ("step", "micro_batch", "num_micro_batches"):
        setattr(batch, key, getattr(info, key))
    for key in _INTEGERS:
        setattr(batch, key, max(getattr(part.info, key) for part in parts))
    for key in ("bytes_read", "bytes_moved"):
        setattr(batch, key, sum(getattr(part.info, key) for part in parts))
    batch.dummy_image = any(part.info.dummy_image for part in parts)
    batch.totals, batch.micro_batch_totals, batch.step_totals = (
        parts[-1].totals(of) for of in range(3)
    )
    for part in parts:
        for tensor in part.tensors():
            batch[tensor.name] = to_array(tensor)
        if part.info.module == _abi.MODULES["language"]:
            batch["max_seqlen"] = batch.max_seqlen
        else:
            batch["vision_max_seqlen"] = batch.vision_max_seqlen
    return batch
