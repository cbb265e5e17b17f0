"""State dictionaries: the data's position, for a checkpoint."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from . import _abi, _structs
from .errors import InvalidArgument

_KEY = "ballast_checkpoint"


def step_of(data: bytes) -> int:
    """The step that a run continues with. Raises if `data` is not a checkpoint."""
    return int(_info(data).next_step)


def _info(data: bytes) -> _structs.CheckpointInfo:
    return _abi.fill(_structs.CheckpointInfo, "ballast_checkpoint_read", data, len(data))


def state_of(data: bytes) -> Dict[str, Any]:
    """What `Loader.state_dict` returns."""
    return {_KEY: data, "next_step": step_of(data)}


def data_of(state: Mapping[str, Any], split: str) -> bytes:
    """The checkpoint in what `Loader.state_dict` returned. Raises if there is none, or
    one of another split."""
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
