"""`build_data_iterators_fn` of Megatron-Bridge's MIMO pre-training."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, Optional, Tuple

from .._arguments import is_encoder
from ..connection import Servers
from ..errors import FailedPrecondition
from .megatron_bridge import Mimo
from .megatron_hooks import DataIterator

Iterators = Tuple[Optional[Any], Optional[Any]]


def data_iterators(
    servers: Servers,
    *,
    valid_start_step: int = 0,
    adapter: Callable[[Any], Any] = Mimo,
    **options: Any,
) -> Callable[..., Iterators]:
    """A `build_data_iterators_fn` for `pretrain_megatron_mimo`.

        pretrain_megatron_mimo(cfg, forward_step, data_iterators("unix:/run/ballast/a.sock"))

    The function makes this rank's loader from `infra.pg_collections`, begins at
    `train_state.step`, and returns (train, valid) iterators, wrapped in
    RerunDataIterator if megatron.core can be imported. The second is over the job's
    split `valid`, or None if no source has `split: valid`; it goes through that split
    again and again, as the first does, and `train.iterable.save_state()` includes its
    position. A rank without batches gets (None, None). It raises FailedPrecondition if the trainer's batch sizes are not the
    job's, if the dataset's `megatron_mimo_scalable_dp` is off, or if its
    `enable_in_batch_packing` is on.

    Args:
        valid_start_step: first step of the validation data.
        adapter: called with a loader; returns the function that turns its batches into
            inputs.
        options: further options of `Loader`, except the rank's numbers, `split` and
            `start_step`. They hold for both loaders, so twice `max_bytes` may be held.
    """

    def build(cfg: Any, infra: Any, train_state: Any = None) -> Iterators:
        _check_dataset(getattr(cfg, "dataset", None))
        place = place_of(infra.pg_collections)
        if place is None:
            return None, None
        step = int(train_state.step) if train_state is not None else 0
        loader = _opened(servers, dict(options, **place, start_step=step))
        _check_sizes(getattr(cfg, "train", None), loader.job)
        if "valid" not in loader.job.get("splits", ()):
            return _wrapped(DataIterator(loader, adapter(loader))), None
        # Opened before the first batch of either, which loaders on one GPU need.
        valid_loader = _opened(
            servers, dict(options, **place, start_step=valid_start_step, split="valid")
        )
        valid = DataIterator(valid_loader, adapter(valid_loader))
        train = DataIterator(loader, adapter(loader), splits={"valid": valid})
        return _wrapped(train), _wrapped(valid)

    return build


def split_iterator(
    servers: Servers,
    infra: Any,
    split: str,
    *,
    adapter: Callable[[Any], Any] = Mimo,
    **options: Any,
) -> Optional[Any]:
    """This rank's iterator over one split of the job, as `data_iterators` makes them:
    for a test set, for example, which Bridge's builder has no place for.

    On a GPU it must be made before the first batch of any other loader. None on a rank
    without batches. Errors: as Loader; InvalidArgument if no source has the split.
    """
    place = place_of(infra.pg_collections)
    if place is None:
        return None
    loader = _opened(servers, dict(options, **place, split=split))
    return _wrapped(DataIterator(loader, adapter(loader)))


def place_of(collections: Any) -> Optional[Dict[str, Any]]:
    """A rank's module and numbers, from the process groups of its module; None for a
    stage of an encoder that gets no batches."""
    for name, groups in collections.items():
        if groups is None:
            continue
        module = "vision" if is_encoder(name) else name
        if is_encoder(module) and groups.pp.rank() > 0:
            return None
        ranks = {key + "_rank": getattr(groups, key).rank() for key in ("dp", "tp", "pp", "cp")}
        return dict(ranks, modules=module)
    return None


def _opened(servers: Servers, options: Dict[str, Any]) -> Any:
    from ..loader import Loader

    return Loader(servers, **options).open()


def _wrapped(iterator: DataIterator) -> Any:
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
        sizes = [r["samples"] for r in job.get("step_ranges", ())] if other == "global" else []
        if found is not None and found != wanted and found not in sizes:
            raise FailedPrecondition(
                "train.%s: found %s; the servers' batch.%s is %d: set one to the other"
                % (key, found, other, wanted)
            )
