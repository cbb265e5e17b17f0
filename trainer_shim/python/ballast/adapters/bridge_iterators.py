"""`build_data_iterators_fn` of Megatron-Bridge's MIMO pre-training."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, Optional, Tuple

from ..connection import Servers
from ..errors import FailedPrecondition
from .megatron_bridge import Mimo
from .megatron_hooks import DataIterator

Iterators = Tuple[Optional[Any], Optional[Any]]


def data_iterators(
    servers: Servers,
    *,
    valid_servers: Optional[Servers] = None,
    adapter: Callable[[Any], Any] = Mimo,
    **options: Any,
) -> Callable[..., Iterators]:
    """A `build_data_iterators_fn` for `pretrain_megatron_mimo`.

        pretrain_megatron_mimo(cfg, forward_step, data_iterators("unix:/run/ballast/a.sock"))

    The function makes this rank's loader from `infra.pg_collections`, begins at
    `train_state.step`, and returns (train, valid) iterators, wrapped in
    RerunDataIterator if megatron.core can be imported. A rank without batches gets
    (None, None). It raises FailedPrecondition if the trainer's batch sizes are not the
    job's, if the dataset's `megatron_mimo_scalable_dp` is off, or if its
    `enable_in_batch_packing` is on.

    Args:
        valid_servers: servers of a job over the validation data. None: no validation.
        adapter: called with a loader; returns the function that turns its batches into
            inputs.
        options: further options of `Loader`, except the rank's numbers and
            `start_step`.
    """

    def build(cfg: Any, infra: Any, train_state: Any = None) -> Iterators:
        _check_dataset(getattr(cfg, "dataset", None))
        place = place_of(infra.pg_collections)
        if place is None:
            return None, None
        step = int(train_state.step) if train_state is not None else 0
        train = _iterator(servers, adapter, dict(options, **place, start_step=step))
        _check_sizes(getattr(cfg, "train", None), train.iterable.loader.job)
        valid = None
        if valid_servers is not None:
            valid = _iterator(valid_servers, adapter, dict(options, **place))
        return train, valid

    return build


def place_of(collections: Any) -> Optional[Dict[str, Any]]:
    """A rank's module and numbers, from the process groups of its module; None for a
    stage of an encoder that gets no batches."""
    for name, groups in collections.items():
        if groups is None:
            continue
        module = "language" if name == "language" else "vision"
        if module == "vision" and groups.pp.rank() > 0:
            return None
        ranks = {key + "_rank": getattr(groups, key).rank() for key in ("dp", "tp", "pp", "cp")}
        return dict(ranks, modules=module)
    return None


def _iterator(servers: Servers, adapter: Callable[[Any], Any], options: Dict[str, Any]) -> Any:
    from ..loader import Loader

    loader = Loader(servers, **options)
    iterator = DataIterator(loader, adapter(loader))
    try:
        rerun = importlib.import_module("megatron.core.rerun_state_machine")
    except ImportError:
        return iterator
    return rerun.RerunDataIterator(iterator)


def _check_dataset(dataset: Any) -> None:
    for key, wanted, why in (
        ("megatron_mimo_scalable_dp", True, "a batch is this rank's share already"),
        ("enable_in_batch_packing", False, "a batch is packed already"),
    ):
        found = bool(getattr(dataset, key, False))
        if found != wanted:
            raise FailedPrecondition(
                "dataset.%s: found %s; wanted %s: %s" % (key, found, wanted, why)
            )


def _check_sizes(train: Any, job: Dict[str, Any]) -> None:
    for key, other in (("global_batch_size", "global"), ("micro_batch_size", "micro")):
        found, wanted = getattr(train, key, None), job[other + "_batch"]
        if found is not None and found != wanted:
            raise FailedPrecondition(
                "train.%s: found %s; the servers' batch.%s is %d: set one to the other"
                % (key, found, other, wanted)
            )
