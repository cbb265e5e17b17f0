"""Lightning, which saves and restores the state of its loaders by itself, and what it forgets."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Optional

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def is_lightning(frame: FrameType) -> bool:
    """Whether a function of Lightning runs in the frame."""
    return str(frame.f_globals.get("__name__", "")).startswith(("lightning.", "pytorch_lightning."))


def restore(frame: Optional[FrameType]) -> None:
    """Loads the states that Lightning has read from a checkpoint and not given to its loaders.

    Lightning gives its loaders their states when it sets them up. Where `configure_optimizers`
    reads `trainer.estimated_stepping_batches`, that is before it has read the checkpoint
    (Lightning 2.6), and it keeps the states: a resumed run would train on the first batches
    again, and never on as many of the last.

    Args:
        frame: of the caller of the loader's `next`.
    """
    if not any(name in sys.modules for name in _NAMES):
        return
    while frame is not None:
        loop = frame.f_locals.get("self") if is_lightning(frame) else None
        states = getattr(loop, "_combined_loader_states_to_load", None)
        combined = getattr(loop, "_combined_loader", None)
        if loop is not None and states and combined is not None:
            loop._combined_loader_states_to_load = []
            combined._load_state_dicts(states)
            return
        frame = frame.f_back
