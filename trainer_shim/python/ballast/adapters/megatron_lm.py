"""Inputs of Megatron-LM's training scripts."""

from __future__ import annotations

import functools
import types
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .._arguments import is_encoder
from ..connection import Connection, Servers
from ..errors import FailedPrecondition, InvalidArgument
from ._arrays import is_padded
from ._images import real_images
from ._takes import check
from .bridge_iterators import Modules, counted, iterator_of, place_of
from .bridge_vlm import host_number
from .megatron_bridge import Mimo, radio
from .megatron_hooks import Batches

Iterators = Tuple[Optional[Batches], Optional[Batches], Optional[Batches]]


def batch_list(batch: Mapping[str, Any]) -> List[Any]:
    """The list that `get_batch` of `pretrain_gpt.py` returns.

    In its order: attention_mask (None), cu_seqlens, cu_seqlens_padded (both the places of
    the samples, as multi-token prediction wants them) int32 [1, n+1], hybrid_cp_group
    (None), labels, local_cp_size (None), loss_mask, max_seqlen int32 [1] in host memory, position_ids, tokens. Values that the rank's
    stage does not have are None, and so are the lengths of a padded batch
    (`packing.mode: padded`), whose rows are [B, S]. Labels, mask and ids are already sliced for the
    context rank; lengths are of whole samples.

    Raises InvalidArgument for a batch with images, which the list cannot hold, and
    FailedPrecondition for one of samples with images whose loader has no pixels.
    """
    check(batch, "megatron_lm.batch_list")
    found = real_images(batch)
    if found is not None:
        raise InvalidArgument(
            "found %d images; get_batch of pretrain_gpt.py has no place for them and would "
            "train without: use ballast.adapters.megatron_bridge.Mimo" % found[1].shape[0]
        )
    bounds: List[Any] = [None, None]
    longest: Any = None
    if not is_padded(batch):
        bounds = [batch["cu_seqlens_padded"][None]] * 2
        longest = host_number(int(batch["max_seqlen"]), batch["cu_seqlens"])
    return [
        None,
        *bounds,
        None,
        batch.get("labels"),
        None,
        batch.get("loss_mask"),
        longest,
        batch.get("position_ids"),
        batch.get("input_ids"),
    ]


def tensors_only(inputs: Mapping[str, Any]) -> Dict[str, Any]:
    """`megatron_bridge.forward_inputs` for the `get_batch` of `examples/mimo/train.py`.

    That `get_batch` sends a tensor rank's batch to its peers and accepts only tensors:
    a None is left out, so that MimoModel's default applies, and an int becomes a tensor
    [1]. Requires `dummy_image="drop"`.
    """
    result: Dict[str, Any] = {}
    for key, value in inputs.items():
        if isinstance(value, dict):
            result[key] = tensors_only(value)
        elif isinstance(value, int):
            result[key] = host_number(value, inputs["cu_seqlens_q"])
        elif isinstance(value, tuple):
            raise InvalidArgument(
                "%s: found a tuple, which cannot be sent to tensor peers: make the inputs with "
                'dummy_image="drop"' % key
            )
        elif value is not None:
            result[key] = value
    return result


def wrap_data_iterator(
    data_iterator: Any, config: Any = None, num_microbatches: int = 0, pg_collection: Any = None
) -> Tuple[Any, int, float, float]:
    """In the place of Megatron-LM's function of this name (`data_schedule.py`): (the iterator
    itself, number of micro-batches, sum of the samples' lengths, sum of their squares) of
    the next step, all of them known from its schedule. No rank gathers lengths.

    Lengths are padded ones. All ranks call it at the same place, before a step's first
    batch. Other arguments than the first are Megatron-LM's, and without effect. Errors: as
    `Batches.step_totals`; InvalidArgument for another iterator.

    Args:
        data_iterator: a `megatron_hooks.Batches` or DataIterator, its list `iterators`, or
            one of these in a RerunDataIterator, whose step may be computed again.
    """
    first = data_iterator[0] if isinstance(data_iterator, list) else data_iterator
    batches = first
    while batches is not None and not isinstance(batches, Batches):
        batches = getattr(batches, "iterable", None)
    if batches is None:
        raise InvalidArgument(
            "data_iterator: found %s; wanted a megatron_hooks.DataIterator on every rank"
            % type(first).__name__
        )
    count = batches.num_micro_batches()
    totals = batches.step_totals()
    return data_iterator, count, float(totals.padded_tokens), float(totals.padded_tokens_squared)


def mimo_data_loaders(
    servers: Servers,
    *,
    modules: Modules = None,
    adapter: Optional[Callable[[Any], Any]] = None,
    **options: Any,
) -> Callable[[Any, Any], Iterators]:
    """A `build_train_valid_test_data_loaders` for Megatron-LM's `examples/mimo/pretrain_mimo.py`:
    the loaders of this rank's role, encoder or language model.

        from examples.mimo import pretrain_mimo
        pretrain_mimo.build_train_valid_test_data_loaders = megatron_lm.mimo_data_loaders(
            "unix:/run/ballast/a.sock")
        pretrain_mimo.main()

    Training begins at `args.iteration`, validation after `args.consumed_valid_samples`. A
    rank without batches gets None for each split, and so does a split without a
    source, or that nobody evaluates (`--eval-iters 0`).

    The function raises FailedPrecondition, before the first step, if
    - the modules of the topology or their parallel sizes are not the job's, or weights are
      spread over data-parallel ranks (`--gtp-weight-remat-size`),
    - `--global-batch-size`, or `--micro-batch-size` times the language model's dp, differs
      from the job's size,
    - sizes of the evaluation differ from those of the split `valid`,
    - the iterations of a resumed run had other samples than the job's first steps;
    and at a step with another number of micro-batches.

    Args:
        modules: as `bridge_iterators.data_iterators` takes it. Without it an encoder of any
            name is the job's only one.
        adapter: called with a loader; returns the function that turns its batches into
            inputs. Default: `Mimo` with the topology's name for modality and encoder, and
            `megatron_bridge.radio`, as that example's model has them.
        options: further options of Loader, without the rank's numbers.
    """

    def build(args: Any, topology: Any) -> Iterators:
        job = Connection.of(servers).job()
        names = [name for name in topology.grids if is_encoder(name)]
        inputs = adapter or Mimo
        if adapter is None and names:
            inputs = functools.partial(Mimo, modality=names[0], encoders={names[0]: radio})
        own = modules
        encoders = [m["module"] for m in job["modules"] if is_encoder(m["module"])]
        if own is None and len(names) == len(encoders) == 1:
            own = {names[0]: encoders[0]}
        place = place_of(
            {
                name: topology.module_pgs[name] if grid.is_current_rank_in_grid() else None
                for name, grid in topology.grids.items()
            },
            job, own,
        )  # fmt: skip
        rematerialized = getattr(args, "gtp_weight_remat_size", 1)
        if rematerialized != 1:
            raise FailedPrecondition(
                "--gtp-weight-remat-size: found %s; wanted 1, since every data-parallel rank has "
                "its own samples" % rematerialized
            )
        if place is None:
            return None, None, None
        cfg = types.SimpleNamespace(train=args, validation=args)
        state = types.SimpleNamespace(
            step=int(args.iteration), consumed_train_samples=args.consumed_train_samples
        )
        dp = next(int(m["dp"]) for m in job["modules"] if m["module"] == "language")
        made: List[Optional[Batches]] = []
        evaluates = args.eval_iters or getattr(args, "full_validation", False)
        consumed = int(getattr(args, "consumed_valid_samples", 0) or 0)
        of_valid = counted(cfg, "valid", "global_batch_size")[1] or int(args.global_batch_size)
        steps = (state.step, consumed // of_valid, 0)
        try:
            for split, step in zip(("train", "valid", "test"), steps):
                wanted = split == "train" or evaluates
                if not wanted or split not in job.get("splits", ("train",)):
                    made.append(None)
                    continue
                made.append(iterator_of(
                    servers, cfg, dict(options, **place, split=split, start_step=step), inputs,
                    ranks=dp, state=state if split == "train" else None,
                ))  # fmt: skip
        except BaseException:
            for each in made:
                if each is not None:
                    each.shutdown()
            raise
        return made[0], made[1], made[2]

    return build
