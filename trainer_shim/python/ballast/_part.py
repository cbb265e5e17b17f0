"""One module's part of a batch, as the library handed it out."""

from __future__ import annotations

import ctypes
import itertools
from ctypes import c_void_p
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from . import _abi, _structs
from .errors import FailedPrecondition
from .sample import Sample, Totals


class Part:
    """One module's batch, which the library keeps until the part is deleted.

    The batch and every array made from the part refer to it, so the memory lasts as
    long as any of them. The part may be deleted on any thread.

    Args:
        handle: with one reference, which the part takes over.
    """

    def __init__(self, handle: c_void_p) -> None:
        self._handle = handle
        #: Names of the arrays that still refer to the memory, one entry each.
        #: Single dictionary operations are atomic, so any thread may drop an array.
        self.held: Dict[int, str] = {}
        self._keys = itertools.count()
        self.info = _abi.fill(_structs.BatchInfo, "ballast_batch_get_info", handle)

    def hold(self, name: str) -> Callable[[], None]:
        """Notes an array over the part's memory. Calling the result ends that; it keeps
        the part alive until then."""
        key = next(self._keys)
        self.held[key] = name

        def release() -> None:
            self.held.pop(key, None)

        return release

    def __del__(self) -> None:
        if _abi is not None:  # None while the interpreter exits
            _abi.library().ballast_batch_release(self._handle)

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
        """The number of samples and the first's and the last's positions. Samples lie in the
        order of the schedule, so those of two modules are the same if these are."""
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


def check_same_samples(parts: Sequence[Part]) -> None:
    """Refuses parts of vision and of language that are not of the same samples."""
    if len(parts) == 2 and parts[0].bounds() != parts[1].bounds():
        vision, language = (part.info for part in parts)
        raise FailedPrecondition(
            "found the images of %d samples (vision rank %d) and the text of %d (language rank "
            "%d), which are not the same samples, where a rank's own images go into its text: "
            "give both modules the same dp, and this process the same dp_rank in both"
            % (vision.num_samples, vision.dp_rank, language.num_samples, language.dp_rank)
        )
