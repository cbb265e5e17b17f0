"""State dictionaries: the data's position, for a checkpoint."""

from __future__ import annotations

from types import FrameType
from typing import Any, Dict, Mapping

from . import _abi, _structs
from .errors import FailedPrecondition, InvalidArgument

_KEY = "ballast_checkpoint"
_FETCHES_AHEAD = ("lightning.", "pytorch_lightning.")


def step_of(data: bytes) -> int:
    """The step that a run continues with. Raises if `data` is not a checkpoint."""
    return int(_info(data).next_step)


def check_asker(frame: FrameType) -> None:
    """Refuses Lightning's functions the state of a loader without an end: Lightning
    holds a batch of it that no step has trained on yet, and a run that continued from
    the state would skip that batch."""
    if frame.f_globals.get("__name__", "").startswith(_FETCHES_AHEAD):
        raise FailedPrecondition(
            "state_dict: Lightning fetches a batch ahead of a loader without an end, and its "
            "checkpoint would leave that batch out: set Loader(steps=...), or order.epochs in "
            "the configuration"
        )


def _info(data: bytes) -> _structs.CheckpointInfo:
    return _abi.fill(_structs.CheckpointInfo, "ballast_checkpoint_read", data, len(data))


def state_of(data: bytes) -> Dict[str, Any]:
    """What `Loader.state_dict` returns."""
    return {_KEY: data, "next_step": step_of(data)}


def data_of(state: Mapping[str, Any], split: str) -> bytes:
    """The checkpoint in a result of `Loader.state_dict`. Raises if there is none, or if
    it is another split's."""
    data = state.get(_KEY)
    if not isinstance(data, (bytes, bytearray)):
        raise InvalidArgument(
            "state_dict: found keys %s; wanted %r with bytes, as Loader.state_dict returns"
            % (sorted(map(str, state)), _KEY)
        )
    number = _info(bytes(data)).split
    if number != _structs.SPLITS[split]:
        names = {value: name for name, value in _structs.SPLITS.items()}
        raise InvalidArgument(
            "state_dict: found that of split %s; wanted %s, the loader's split: keep a state "
            "for each split's loader, and give each its own"
            % (names.get(number, number), split)
        )
    return bytes(data)
