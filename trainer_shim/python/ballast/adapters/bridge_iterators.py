"""`build_data_iterators_fn` of Megatron-Bridge's MIMO pre-training."""

from __future__ import annotations

import importlib
import inspect
import math
import sys
import types
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from .._arguments import is_encoder
from .._progress import batches_between
from ..connection import Connection, Servers
from ..errors import FailedPrecondition, InvalidArgument
from .megatron_bridge import Mimo
from .megatron_hooks import Batches

Iterators = Tuple[Optional[Any], Optional[Any]]
Modules = Optional[Mapping[str, str]]

#: Names of encoders in the examples of Bridge and Megatron-LM, and ours.
_EXAMPLES = {"images": "vision"}
_FLAG = "megatron_mimo_scalable_dp"
_STEP = "megatron.bridge.training.megatron_mimo_step"
# Of a release's step, and of the one whose modules share their ranks (colocated).
_CUTS = ("slice_batch_for_megatron_mimo", "slice_batch_for_megatron_mimo_modules")
#: Whether this process has made an uncut_forward_step.
_uncut = False


def data_iterators(
    servers: Servers,
    *,
    modules: Modules = None,
    valid_start_step: Optional[int] = None,
    adapter: Callable[[Any], Any] = Mimo,
    **options: Any,
) -> Callable[..., Iterators]:
    """A `build_data_iterators_fn` for `pretrain_megatron_mimo`.

        pretrain_megatron_mimo(cfg, forward_step, data_iterators("unix:/run/ballast/a.sock"))

    The function makes this rank's loader from `infra.pg_collections`, begins at
    `train_state.step`, and returns (train, valid) iterators, wrapped in
    RerunDataIterator if megatron.core can be imported. The second is over the job's
    split `valid`, or None if no source has `split: valid`; it begins after
    `train_state.consumed_valid_samples`, and goes through that split again and again. A
    rank without batches gets (None, None).

    Both positions are in Bridge's train state, which one rank writes. So the iterators
    (`megatron_hooks.Batches`) have no `save_state`: Bridge would let each module remove
    and write the same folder.

    It raises FailedPrecondition, before the first step, if
    - the trainer's modules or their parallel sizes are not the job's,
    - the trainer's batch sizes, of training or of validation, differ from the split's
      loader,
    - the steps that the train state counts had other samples than the job's first steps,
    - the vision encoder is not prepared for dummy images
      (`megatron_bridge.accept_dummy_images`),
    - the dataset's `megatron_mimo_scalable_dp` is off, its `enable_in_batch_packing` is
      on, or its `dataloader_save` names a folder,
    - Bridge's forward step does not know `megatron_mimo_scalable_dp`, and
      `uncut_forward_step` was not asked for one that needs no such flag;
    and at a step whose number of micro-batches is another than Bridge takes.

    Args:
        modules: the job's module for a module of the trainer, where their names differ:
            {"radio": "vision"}. Without it `images`, the name in Bridge's examples, is the
            job's only encoder.
        valid_start_step: first step of the validation data. Default: after those that
            the train state has counted.
        adapter: called with a loader; returns the function that turns its batches into
            inputs.
        options: further options of `Loader`, except the rank's numbers, `split` and
            `start_step`. They hold for both loaders, so twice `max_bytes` may be held.
    """

    def build(cfg: Any, infra: Any, train_state: Any = None) -> Iterators:
        _check_dataset(getattr(cfg, "dataset", None))
        job = Connection.of(servers).job()
        place = place_of(infra.pg_collections, job, modules)
        if place is None:
            return None, None
        # All ranks raise, or none.
        _check_step(max(module.get("dp") or 1 for module in job["modules"]))
        step = int(train_state.step) if train_state is not None else 0
        first = valid_start_step
        if first is None:
            consumed = int(getattr(train_state, "consumed_valid_samples", 0))
            first = consumed // (
                counted(cfg, "valid", "global_batch_size")[1] or job["global_batch"]
            )
        loader = opened(servers, dict(options, **place, start_step=step))
        try:
            check_sizes(cfg, "train", loader.job, step)
            check_position(loader.job, train_state)
            inputs = adapter(loader)
            if isinstance(inputs, Mimo) and place["modules"] == "vision":
                inputs.check_prepared()
            valid = None
            if "valid" in loader.job.get("splits", ()):
                # Opened before the first batch of either, which loaders on one GPU need.
                valid = iterator_of(
                    servers, cfg, dict(options, **place, start_step=first, split="valid"), adapter
                )
        except BaseException:
            loader.close()
            raise
        splits = {} if valid is None else {"valid": valid}
        train = Batches(loader, inputs, splits=splits, micro_batches=micro_batches(cfg, "train"))
        return _wrapped(train), None if valid is None else _wrapped(valid)

    return build


def uncut_forward_step() -> Callable[..., Any]:
    """The MIMO forward step of the Megatron-Bridge that is installed, without its cut of each
    batch for data-parallel ranks: a batch of Ballast is this rank's share.

        pretrain_megatron_mimo(cfg, uncut_forward_step(), data_iterators(...))

    For releases that lack `megatron_mimo_scalable_dp`, such as 0.6.2. The code is Bridge's
    own; one name that it looks up is another function. FailedPrecondition if the installed
    step looks up none of the names that are known.
    """
    global _uncut
    step = importlib.import_module(_STEP).forward_step
    cuts = [name for name in _CUTS if name in step.__code__.co_names]
    if not cuts:
        raise FailedPrecondition(
            "%s.forward_step: found no call of %s; wanted a step that cuts batches by one of them: "
            "pass the step itself if it knows dataset.%s, else one that does not cut"
            % (_STEP, " or ".join(_CUTS), _FLAG)
        )
    whole = dict.fromkeys(cuts, lambda batch, *_, **__: batch)
    uncut = types.FunctionType(
        step.__code__, {**step.__globals__, **whole}, step.__name__,
        step.__defaults__, step.__closure__,
    )  # fmt: skip
    uncut.__annotations__ = dict(step.__annotations__)
    uncut.__kwdefaults__ = step.__kwdefaults__
    _uncut = True
    return uncut


def split_iterator(
    servers: Servers,
    infra: Any,
    split: str,
    *,
    cfg: Any,
    modules: Modules = None,
    adapter: Callable[[Any], Any] = Mimo,
    **options: Any,
) -> Optional[Any]:
    """This rank's iterator over one split of the job, as `data_iterators` makes them:
    for a test set, for example, which Bridge's builder has no place for.

    On a GPU it must be made before the first batch of any other loader. None on a rank
    without batches. Errors: as Loader and as `data_iterators`; InvalidArgument if no
    source has the split.

    Args:
        cfg: Bridge's configuration, whose batch sizes (`validation.eval_*`, or
            `train.*` for the split "train") must be the split's. None, for a loop of
            your own: any sizes.
        modules, adapter, options: as `data_iterators` takes them.
    """
    place = place_of(infra.pg_collections, Connection.of(servers).job(), modules)
    if place is None:
        return None
    return _wrapped(iterator_of(servers, cfg, dict(options, **place, split=split), adapter))


def place_of(
    collections: Mapping[str, Any], job: Mapping[str, Any], modules: Modules = None
) -> Optional[Dict[str, Any]]:
    """A rank's module and numbers, from the process groups of its module; None for a
    stage of an encoder that gets no batches.

    Raises FailedPrecondition if the trainer's modules or sizes are not the job's.

    Args:
        collections: process groups of each module of the trainer; None where the rank
            is not of the module.
        modules: as `data_iterators` takes it.
    """
    ours = ours_of(collections, job, modules)
    here = [(name, groups) for name, groups in collections.items() if groups is not None]
    if len(here) > 1:
        raise FailedPrecondition(
            "pg_collections: found ranks of %s in one process; wanted one module: make the loader "
            'yourself, Loader(servers, ("vision", "language"), ...), and wrap it in '
            "megatron_hooks.DataIterator" % " and ".join(repr(name) for name, _ in here)
        )
    for name, groups in here:
        module = ours[name]
        _check_parallel(name, groups, next(m for m in job["modules"] if m["module"] == module))
        if is_encoder(module) and groups.pp.rank() > 0:
            return None
        ranks = {key + "_rank": getattr(groups, key).rank() for key in _SIZES}
        return dict(ranks, modules=module)
    return None


def ours_of(
    names: Iterable[str], job: Mapping[str, Any], modules: Modules = None
) -> Dict[str, str]:
    """The job's module of each module of the trainer. Raises FailedPrecondition unless
    each of them is one of the job's, and each of the job's one of them."""
    given = dict(modules or {})
    names = list(names)
    job_modules = [each["module"] for each in job["modules"]]
    encoders = [name for name in job_modules if is_encoder(name)]
    for name in given:
        if name not in names:
            raise InvalidArgument(
                "modules: found %r; the trainer's modules are %s" % (name, _list(names))
            )
    ours: Dict[str, str] = {}
    for name in names:
        guess = encoders[0] if len(encoders) == 1 and _EXAMPLES.get(name) == encoders[0] else name
        module = given.get(name, name if name in job_modules else guess)
        if module not in job_modules or is_encoder(module) != is_encoder(name):
            raise FailedPrecondition(
                "pg_collections: found the trainer's module %r%s; the job's modules are %s: say "
                'which it is, data_iterators(..., modules={%r: "vision"}), or add it to '
                "topology.modules, or train without it"
                % (name, " as %r" % module if module != name else "", _list(job_modules), name)
            )
        for other, taken in ours.items():
            if taken == module:
                raise FailedPrecondition(
                    "pg_collections: found the trainer's modules %r and %r for the job's one %r; "
                    "both would train on the same samples: wanted one module of the trainer for "
                    "each of the job's, %s: correct modules=, or train without one of them"
                    % (other, name, module, _list(job_modules))
                )
        ours[name] = module
    for module in job_modules:
        if module not in ours.values():
            raise FailedPrecondition(
                "pg_collections: found the trainer's modules %s; the job also has %r, whose data "
                "nobody would train on: take it out of topology.modules, or say which module it "
                "is, data_iterators(..., modules={...: %r})" % (_list(names), module, module)
            )
    return ours


_SIZES = ("dp", "tp", "pp", "cp")


def _check_parallel(name: str, groups: Any, module: Mapping[str, Any]) -> None:
    for key in _SIZES:
        size = getattr(getattr(groups, key), "size", None)
        wanted = module.get(key) or 1
        if size is not None and size() != wanted:
            raise FailedPrecondition(
                "the trainer's module %r: found %s %d; the servers' topology.modules.%s.%s is %d: "
                "set one to the other, or some of the data would reach no rank"
                % (name, key, size(), module["module"], key, wanted)
            )


def _list(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def opened(servers: Servers, options: Dict[str, Any]) -> Any:
    """An open loader."""
    from ..loader import Loader

    return Loader(servers, **options).open()


def iterator_of(
    servers: Servers,
    cfg: Any,
    options: Dict[str, Any],
    adapter: Callable[[Any], Any],
    *,
    ranks: int = 1,
    state: Any = None,
) -> Batches:
    """The iterator over a split, whose sizes it checks.

    Args:
        ranks: as `check_sizes` takes it.
        state: the train state, which `check_position` compares.
    """
    split = options["split"]
    if split != "train":
        options = {"steps": math.inf, **options}  # the trainer says how many it takes
    loader = opened(servers, options)
    try:
        check_sizes(cfg, split, loader.job, options.get("start_step", 0), ranks)
        if state is not None:
            check_position(loader.job, state)
        return Batches(loader, adapter(loader), micro_batches=micro_batches(cfg, split, ranks))
    except BaseException:
        loader.close()
        raise


def _wrapped(iterator: Batches) -> Any:
    try:
        rerun = importlib.import_module("megatron.core.rerun_state_machine")
    except ImportError:
        return iterator
    return rerun.RerunDataIterator(iterator)


def _check_dataset(dataset: Any) -> None:
    for key, wanted, why in (
        (_FLAG, True, "a batch is this rank's share already"),
        ("enable_in_batch_packing", False, "a batch is packed already"),
    ):
        found = bool(getattr(dataset, key, False))
        if found != wanted:
            raise FailedPrecondition(
                "dataset.%s: found %s; wanted %s: %s" % (key, found, wanted, why)
            )
    folder = getattr(dataset, "dataloader_save", None)
    if folder:
        raise FailedPrecondition(
            "dataset.dataloader_save: found %r; wanted none: each module of the MIMO loop would "
            "remove and write that folder at the same time. The data's position is in the train "
            "state" % folder
        )


def _check_step(dp: int) -> None:
    """Refuses a Bridge whose forward step does not know the flag, and would cut each batch
    once more for its data-parallel ranks."""
    step = sys.modules.get(_STEP)
    try:
        known = step is None or dp == 1 or _uncut or _FLAG in inspect.getsource(step)
    except OSError:
        return  # without its source
    if not known:
        raise FailedPrecondition(
            "%s: found a version that ignores dataset.%s and would cut each batch once more for "
            "%d ranks; wanted bridge_iterators.uncut_forward_step() as the forward step, or a "
            "Megatron-Bridge with pull request 5525, which 0.6.2 lacks" % (_STEP, _FLAG, dp)
        )


def counted(cfg: Any, split: str, key: str) -> Tuple[str, Optional[int]]:
    """The key and the value by which the trainer counts the samples of a split. Bridge has
    the evaluation's in `validation`; its versions without that group, and without the
    keys, count the training's."""
    for group in ("validation", "train") if split != "train" else ():
        value = getattr(getattr(cfg, group, None), "eval_" + key, None)
        if value is not None:
            return "%s.eval_%s" % (group, key), value
    return "train." + key, getattr(getattr(cfg, "train", None), key, None)


def micro_batches(cfg: Any, split: str, ranks: int = 1) -> Optional[int]:
    """Micro-batches that the trainer takes of each step of a split, if it says so.

    Args:
        ranks: as `check_sizes` takes it.
    """
    size, micro = (counted(cfg, split, key)[1] for key in ("global_batch_size", "micro_batch_size"))
    return None if size is None or micro is None else size // (micro * ranks)


def check_sizes(cfg: Any, split: str, job: Mapping[str, Any], step: int, ranks: int = 1) -> None:
    """Refuses a trainer that counts other samples of a split than it gets.

    Args:
        ranks: data-parallel ranks, if the trainer's micro batch size is of one of them.
    """
    sizes = _sizes_from(job, step)
    if 0 in sizes and cfg is not None:
        raise FailedPrecondition(
            "split %s: found steps that differ in size (order.plan, batch.tokens, batch.packs); "
            "wanted one size, since the loop takes as many micro-batches of every step: set "
            "batch.global, or take a loop that asks num_micro_batches(step)" % split
        )
    if len(sizes) > 1 and cfg is not None:
        raise FailedPrecondition(
            "batch.global of split %s: found steps of %s samples; wanted one size, since Bridge's "
            "loop takes as many micro-batches of every step: leave out batch.rampup and "
            "batch.changes" % (split, ", ".join(map(str, sizes)))
        )
    for key, wanted, name in (
        ("global_batch_size", sizes[0], "global"),
        ("micro_batch_size", job["micro_batch"], "micro"),
    ):
        theirs, found = counted(cfg, split, key)
        over = ranks if name == "micro" else 1
        if found is not None and found * over != wanted:
            raise FailedPrecondition(
                "%s: found %s%s; the servers' batch.%s is %d for the split %s, so the trainer "
                "would count other samples than it gets: set one to the other"
                % (theirs, found, " on each of %d ranks" % over if over > 1 else "", name, wanted,
                   split)
            )  # fmt: skip


def check_position(job: Mapping[str, Any], state: Any) -> None:
    """Refuses a train state that has consumed other samples in its steps than the job has in
    its first ones: batches are taken by the step, so some would be left out, or come again.

    A state that counts no samples is taken, and one at step 0, as of a released checkpoint.
    """
    found = int(getattr(state, "consumed_train_samples", 0))
    if not found or not state.step:
        return
    try:
        wanted = batches_between(job, 0, int(state.step)) * job["micro_batch"]
    except TypeError:  # steps that differ in size, which only their schedules know
        return
    if found != wanted:
        raise FailedPrecondition(
            "train_state: found %d samples consumed in %d steps, and the job's first %d steps have "
            "%d, so it would leave out samples, or repeat them: leave batch.global as it was, and "
            "give the new size in batch.changes, {step: %d, global: ...}"
            % (found, state.step, state.step, wanted, state.step)
        )


def _sizes_from(job: Mapping[str, Any], step: int) -> List[int]:
    """Sizes of the steps from `step` on, smallest first; 0: each has its own."""
    ranges = list(job.get("step_ranges", ()))
    ends: List[Optional[int]] = [each["first_step"] for each in ranges[1:]]
    pairs = zip(ranges, ends + [None])
    sizes = {each["samples"] for each, end in pairs if end is None or end > step}
    return sorted(sizes) or [job["global_batch"]]
