"""Megatron-Bridge's `cfg.dataset`, from a Ballast server. To be imported where Bridge is."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from ..connection import Connection
from ..errors import FailedPrecondition, InvalidArgument
from . import bridge_iterators, bridge_omni, bridge_qwen3_vl, bridge_vlm
from .bridge_iterators import Iterators
from .megatron_hooks import Batches

DatasetProvider: Any = importlib.import_module("megatron.bridge.data.base").DatasetProvider
_STEPS = ("vlm_step", "qwen3_vl_step", "qwen3_omni_step")
_LOADERS = "megatron.bridge.data.loaders"


@dataclass(kw_only=True)  # type: ignore[call-overload]
class BallastDatasetProvider(DatasetProvider):  # type: ignore[misc]
    """The dataset of a Bridge recipe: a class that a YAML file can name.

        dataset:
          _target_: ballast.adapters.bridge_provider.BallastDatasetProvider
          servers: unix:/run/ballast/a.sock
          model: qwen3_vl

    For `pretrain` and `finetune` with one of Bridge's steps: they ask this class for the data of
    each rank. For `pretrain_megatron_mimo` give it `build_data_iterators`, which
    reads the same object.

    Training begins at `train_state.step`, validation after
    `train_state.consumed_valid_samples`, and test data at their first step: the positions are
    in Bridge's train state, so no dataloader state is saved. Splits without a source have
    no data.

    `build_datasets` raises FailedPrecondition, before the first step, if
    - the trainer's parallel sizes are not the job's, or its model cannot run the layout,
    - the global and micro batch sizes, of training or evaluation, are not the split's:
      `batch.micro` is the micro batch size times dp,
    - the steps that the train state counts had other samples than the job's first steps,
    - `model.calculate_per_token_loss` is off: a mean over each micro-batch would depend on
      which samples share a rank,
    - a pipeline gets packed batches without `model.variable_seq_lengths`,
    - with another step than `vlm_step`, samples may be longer than `model.seq_length`.

    Args:
        servers: addresses of the job's servers, as Loader takes them.
        model: "qwen2_5_vl", "qwen3_vl" or "qwen3_5_vl", with `qwen3_omni_step` "qwen3_omni" or
            "qwen2_5_omni"; without use for MIMO.
        step: "vlm_step", "qwen3_vl_step" or "qwen3_omni_step".
        modules: for MIMO, as `bridge_iterators.data_iterators` takes it.
        loader: further options of Loader, without the rank's numbers.
        seq_length: Bridge's MIMO loop hands it to its schedule and counts FLOPs by it. No
            batch is cut or padded to it.
    """

    servers: Union[str, List[str]]
    model: str = "qwen3_vl"
    step: str = "vlm_step"
    modules: Optional[Dict[str, str]] = None
    loader: Dict[str, Any] = field(default_factory=dict)
    seq_length: int = 4096
    # What Bridge reads: batches come as they are to be taken.
    dataloader_type: Optional[str] = "external"
    enable_in_batch_packing: bool = False
    megatron_mimo_scalable_dp: bool = True
    skip_getting_attention_mask_from_dataset: bool = True

    def __post_init__(self) -> None:
        if self.step not in _STEPS:
            raise InvalidArgument("step: found %r; wanted one of %s" % (self.step, list(_STEPS)))
        if self.dataloader_type != "external":
            raise InvalidArgument(
                "dataloader_type: found %r; wanted 'external'" % self.dataloader_type
            )

    def build_datasets(self, context: Any) -> Tuple[Any, Any, Any]:
        """(train, validation, test) iterators of this rank over its batches, for Bridge.

        Opens one loader for each split, before the first batch of any.
        """
        cfg, state = _bridge()
        job = Connection.of(self.servers).job()
        made: Dict[str, Batches] = {}
        evaluates = bool(getattr(cfg.validation, "eval_iters", 0))
        try:
            for split in ("train", "valid", "test"):
                if split in job.get("splits", ("train",)) and (split == "train" or evaluates):
                    made[split] = self._iterator(cfg, state, context.pg_collection, job, split)
        except BaseException:
            for each in made.values():
                each.shutdown()
            raise
        return made.get("train"), made.get("valid"), made.get("test")

    def _iterator(
        self, cfg: Any, state: Any, groups: Any, job: Mapping[str, Any], split: str
    ) -> Batches:
        dp = groups.dp.size()
        step = 0
        if split == "train":
            step = int(state.step)
        elif split == "valid":
            size = bridge_iterators.counted(cfg, split, "global_batch_size")[1]
            step = int(state.consumed_valid_samples) // (size or job["global_batch"])
        options = dict(
            self.loader, **_place(groups, job), needs_input_ids=True, split=split, start_step=step
        )
        micro = bridge_iterators.counted(cfg, split, "micro_batch_size")[1]

        def adapter(loader: Any) -> Any:
            _check_model(cfg.model, groups, loader.job, self.step)
            return self._adapter(loader, cfg, micro)

        return bridge_iterators.iterator_of(
            self.servers, cfg, options, adapter, ranks=dp, state=state if split == "train" else None
        )

    def _adapter(self, loader: Any, cfg: Any, micro: Optional[int]) -> Any:
        if self.step == "vlm_step":
            return bridge_vlm.Vlm(loader, self.model)
        options = {"seq_length": cfg.model.seq_length, "micro_batch_size": micro}
        if self.step == "qwen3_omni_step":
            return bridge_omni.OmniStep(loader, self.model, **options)
        return bridge_qwen3_vl.Qwen3VlStep(loader, **options)


def build_data_iterators(cfg: Any, infra: Any, train_state: Any = None) -> Iterators:
    """The `build_data_iterators_fn` of `pretrain_megatron_mimo` for a BallastDatasetProvider.

        pretrain_megatron_mimo(cfg, forward_step, bridge_provider.build_data_iterators)

    Does what `bridge_iterators.data_iterators` says, with `servers`, `modules` and `loader`
    of `cfg.dataset`.
    """
    dataset = cfg.dataset
    build = bridge_iterators.data_iterators(
        dataset.servers, modules=dataset.modules, **dataset.loader
    )
    return build(cfg, infra, train_state=train_state)


def _bridge() -> Tuple[Any, Any]:
    """The configuration and the train state of the Bridge that calls. It hands neither to a
    provider, and without them evaluation could be of another size, and a resumed run begin
    again, unseen."""
    frame = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals
        if frame.f_globals.get("__name__") == _LOADERS and {"cfg", "train_state"} <= found.keys():
            return found["cfg"], found["train_state"]
        frame = frame.f_back  # type: ignore[assignment]
    raise FailedPrecondition(
        "BallastDatasetProvider.build_datasets: found no build_train_valid_test_data_loaders of "
        "%s among the callers, whose cfg and train_state it compares with the job; wanted a "
        "Megatron-Bridge like 0.6.2: make the loader yourself (docs/megatron.md)" % _LOADERS
    )


def _place(groups: Any, job: Mapping[str, Any]) -> Dict[str, Any]:
    """A rank's modules and numbers. Context ranks of a model that cuts whole batches itself
    are tensor ranks of the job."""
    sizes = {module["module"]: module for module in job["modules"]}
    tp, cp = groups.tp.size(), groups.cp.size()
    language = {"dp": groups.dp.size(), "tp": tp, "pp": groups.pp.size(), "cp": cp}
    ranks = {key: getattr(groups, key).rank() for key in language}
    if cp > 1 and sizes["language"].get("cp", 1) in (0, 1):
        language.update(tp=tp * cp, cp=1)
        ranks.update(tp=ranks["tp"] + tp * ranks["cp"], cp=0)
    for key, size in language.items():
        if size != (sizes["language"].get(key) or 1):
            raise FailedPrecondition(
                "the trainer: found %s %d; the servers' topology.modules.language.%s is %d: set "
                "one to the other, or some of the data would reach no rank"
                % (key, size, key, sizes["language"].get(key) or 1)
            )
    towers = [name for name in sizes if name != "language"] if ranks["pp"] == 0 else []
    place = {"modules": (*towers, "language") if towers else "language", "dp_rank": ranks["dp"]}
    for key in ("tp", "pp", "cp"):
        place[key + "_rank"] = ranks[key]
        if towers:
            own = {name: ranks[key] % (sizes[name].get(key) or 1) for name in towers}
            place[key + "_rank"] = {**own, "language": ranks[key]}
    return place


def _check_model(model: Any, groups: Any, job: Mapping[str, Any], step: str) -> None:
    model = getattr(model, "transformer", model)  # Bridge's newer configurations nest it
    if not getattr(model, "calculate_per_token_loss", True):
        raise FailedPrecondition(
            "model.calculate_per_token_loss: found false; wanted true: the mean of each "
            "micro-batch's mean would depend on which samples share a rank"
        )
    if groups.pp.size() > 1 and step == "vlm_step" and not job.get("padded"):
        if not getattr(model, "variable_seq_lengths", True):
            raise FailedPrecondition(
                "model.variable_seq_lengths: found false; wanted true: packed batches have as "
                "many tokens as their samples, and the pipeline's stages would wait for others; "
                "or set packing.mode: padded with packing.row_length"
            )
    if step != "vlm_step" and not job.get("padded"):
        raise FailedPrecondition(
            "packing.mode: found packed batches; %s takes rows of samples: set packing.mode: padded "
            "and balance.equal_count: true" % step
        )
