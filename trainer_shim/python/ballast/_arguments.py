"""Checks and readings of a loader's arguments."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from . import _structs
from .communicator import Communicator
from .errors import InvalidArgument
from .tensor import Tensor

Rank = Union[int, Mapping[str, int]]
Ends = Union[None, Communicator, Mapping[str, Communicator]]
ToArray = Callable[[Tensor], Any]

PIXEL_TYPES = {name: _structs.DTYPE_NUMBERS[name] for name in ("float32", "bfloat16")}
NORMALISATIONS = {"torchvision": 0, "pil": 1, "bfloat16": 2}
WAYS_TO_TENSOR_PEERS = {"pull": 0, "broadcast": 1}
_ARRAYS: Dict[str, ToArray] = {
    "torch": Tensor.torch,
    "numpy": Tensor.numpy,
    "dlpack": lambda tensor: tensor,
}


def number_of(key: str, value: str, numbers: Mapping[str, int]) -> int:
    """The number that a name stands for."""
    if value not in numbers:
        raise InvalidArgument("%s: found %r; wanted one of %s" % (key, value, list(numbers)))
    return numbers[value]


def modules_of(modules: Union[str, Sequence[str]]) -> List[str]:
    """Modules in the order of their exchanges, which is the same in every process."""
    names = {modules} if isinstance(modules, str) else set(modules)
    if not names:
        raise InvalidArgument('modules: found none; wanted "vision", "language" or both')
    return sorted(names, key=lambda name: number_of("modules", name, _structs.MODULES))


def device_number(device: str) -> Optional[int]:
    """The GPU that "cuda", "cuda:N" or a torch.device names; None for "cpu"."""
    kind, _, number = str(device).partition(":")
    if kind == "cpu" and not number:
        return None
    if kind != "cuda" or not (number.isdigit() or not number):
        raise InvalidArgument('device: found %r; wanted "cuda", "cuda:N" or "cpu"' % (device,))
    if number:
        return int(number)
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None else 0


def to_array_of(array: Optional[str], device: Optional[int]) -> ToArray:
    """The conversion of a batch's tensors to arrays of the kind `array`."""
    if array is None:
        array = "torch" if device is not None or "torch" in sys.modules else "numpy"
    if array not in _ARRAYS:
        raise InvalidArgument("array: found %r; wanted one of %s" % (array, list(_ARRAYS)))
    if array == "numpy" and device is not None:
        raise InvalidArgument('array: found "numpy" with a GPU; wanted device="cpu"')
    return _ARRAYS[array]


def ends_of(key: str, ends: Ends, modules: Sequence[str]) -> Dict[str, Communicator]:
    """The communicator that the caller gave for each module."""
    if isinstance(ends, Communicator):
        if len(modules) != 1:
            raise InvalidArgument(
                "%s: found one for %s; wanted a dictionary with one for each"
                % (key, " and ".join(modules))
            )
        return {modules[0]: ends}
    return dict(ends or {})


class Place:
    """The ranks of this process in each module's layout."""

    KEYS = ("dp_rank", "tp_rank", "pp_rank", "cp_rank")

    def __init__(self, ranks: Mapping[str, Rank]) -> None:
        self._ranks = ranks

    def rank(self, key: str, module: str) -> int:
        rank = self._ranks[key]
        if isinstance(rank, int):
            return rank
        if module not in rank:
            raise InvalidArgument(
                "%s: found ranks for %s; wanted one for %s" % (key, sorted(rank), module)
            )
        return rank[module]
