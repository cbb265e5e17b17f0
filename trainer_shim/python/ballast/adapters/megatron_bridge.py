"""Arguments of MimoModel, for Megatron-Bridge's MIMO forward step (with
`megatron_mimo_scalable_dp`) and `mimo_forward_step` of Megatron-LM's examples."""

from __future__ import annotations

import functools
import inspect
import weakref
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional

from ..errors import FailedPrecondition, InvalidArgument
from ._arrays import (
    dummy_patches,
    images,
    on_first_stage,
    real_images,
    require_images,
    require_whole,
)
from ._layout import Layout
from ._peers import PeerRows
from ._split import TowerBatch, is_split

if TYPE_CHECKING:
    from ..batch import Batch
    from ..loader import Loader

_CONSUMER = "MimoModel"
_DUMMY = ("zero", "drop")
_ADVICE = (
    "a micro-batch whose images are on other ranks brings a dummy image, which MimoModel hands "
    "to its encoder. Prepare the encoder once, before data parallelism wraps it: "
    "megatron_bridge.accept_dummy_image(encoder), with Bridge "
    "cfg.model.register_pre_wrap_hook(megatron_bridge.accept_dummy_images); or, for an encoder "
    'without collectives, take Mimo(loader, dummy_image="drop")'
)
#: Encoders that accept_dummy_image prepared in this process.
_prepared: weakref.WeakSet[Any] = weakref.WeakSet()


class Mimo:
    """Turns each batch of a loader into MimoModel's arguments.

        to_mimo = ballast.adapters.megatron_bridge.Mimo(loader)
        output, loss_mask = model(**to_mimo(next(loader)))

    Opens the loader and raises FailedPrecondition if MimoModel cannot run the job's
    layout: a vision module with pp or cp above 1, several vision ranks that feed one
    language rank, a language module with cp above 1 (MimoModel slices the sequence
    itself: docs/megatron.md says how to configure such a job).

    A vision rank that feeds k > 1 language ranks gets `input_ids` [k, S], from which
    MimoModel learns how many of its rows go to each. Each row holds the image tokens of
    one peer's samples, and no text.

    Args:
        model: the MimoModel, if it is at hand, wrapped or not. MimoModel ignores inputs
            of a modality that it does not know, and would train without images: here
            names that are not the model's, and another image token, are errors, and so is
            an encoder that cannot take a dummy image.
        dummy_image, modality, encoder, values, grid: as `forward_inputs` takes them.
    """

    def __init__(
        self, loader: Loader, *, model: Any = None, dummy_image: str = "zero", **names: str
    ) -> None:
        layout = Layout.of(loader.job)
        self._names = dict(names, dummy_image=dummy_image)
        forward_inputs({}, **self._names)  # raises for a wrong option
        advice = "give its work to data-parallel ranks"
        if layout.vision is not None:
            layout.vision.must_be_one("pp", _CONSUMER, advice)
            layout.vision.must_be_one("cp", _CONSUMER, advice)
        if layout.language is not None:
            layout.language.must_be_one(
                "cp", _CONSUMER,
                "it cuts whole batches itself. Name the context ranks as tensor ranks: "
                "{tp: TP * CP, cp: 1}, and packing.align: 2 * CP",
            )  # fmt: skip
        self._looked = model is not None
        if model is not None:
            token = int(loader.job["model"]["token_ids"]["image"])
            _check_model(model, token, dummy_image, **names)
        # Else language ranks get embeddings from processes that have the tower.
        self._has_tower = layout.colocated and layout.vision is not None
        peers = layout.language_peers(_CONSUMER)
        self._rows = PeerRows(loader, peers) if peers > 1 else None

    def check_prepared(self) -> None:
        """Raises FailedPrecondition if no encoder of this process was prepared for the
        dummy images that this hands over: for a rank of an encoder, once its model is
        made. `Mimo(loader, model=model)` looks at the model itself."""
        if self._names["dummy_image"] == "zero" and not self._looked and not _prepared:
            raise FailedPrecondition("dummy_image: found no encoder that takes it: " + _ADVICE)

    def __call__(self, batch: Batch) -> Dict[str, Any]:
        if self._has_tower and on_first_stage(batch):
            require_images(batch, _CONSUMER)
        inputs = forward_inputs(batch, **self._names)
        if self._rows is not None and batch.get("position_ids") is None:
            inputs["input_ids"] = self._rows(batch)
        return inputs


def forward_inputs(
    batch: Mapping[str, Any],
    *,
    modality: str = "images",
    encoder: str = "qwen_visual",
    values: str = "hidden_states",
    grid: str = "grid_thw",
    dummy_image: str = "zero",
) -> Dict[str, Any]:
    """MimoModel's arguments, from the batch alone.

    `Mimo` does the same and checks the job's layout; a vision rank with several
    language peers needs `Mimo`.

    Keys: `input_ids`, `labels`, `loss_mask` [1, T], `position_ids` [3, 1, T] or
    [1, T], `attention_mask` (None: the segments replace it), `modality_inputs`
    {MODALITY: {ENCODER: {VALUES: [P, V], GRID: [images, 3] int64}}} and
    `packing_kwargs`. Values that the rank does not have are None: labels on a first
    pipeline stage, input ids on a last one, `modality_inputs` on a language rank
    without an encoder and in a micro-batch without an image.

    `packing_kwargs` has `cu_seqlens_q`, `cu_seqlens_kv` (real lengths) and
    `cu_seqlens_q_padded`, `cu_seqlens_kv_padded` (places), all int32 [n+1], and
    `max_seqlen_q`, `max_seqlen_kv` as ints: the arguments of PackedSeqParams except
    `qkv_format="thd"`, which the model sets. With `packing.align: 1` the four arrays
    are equal, as in Bridge's own tight pack. An encoder's rank, which has no text, gets
    None, and so does a padded batch (`packing.mode: padded`), whose tensors are [B, S]
    and [3, B, S]: attention is causal, so padding at the end of a row needs no mask,
    and MimoModel refuses one with context parallelism.

    With `balance.placement: split` the tower also gets the argument `split`, for which
    `accept_split_placement` prepares it: one without refuses the argument.

    Args:
        modality, encoder, values, grid: the names that the model was built with.
        dummy_image: "zero" passes a dummy image (`Batch.dummy_image`) to the tower
            under the key `dummy_image`, for which `accept_dummy_image` prepares the
            tower; "drop" leaves it out, for a tower without collectives. Gradients are
            equal.
    """
    if dummy_image not in _DUMMY:
        raise InvalidArgument('dummy_image: found %r; wanted "zero" or "drop"' % (dummy_image,))
    if batch.get("position_ids") is not None:
        require_whole(batch, _CONSUMER)
    inputs: Dict[str, Any] = {
        key: batch.get(key) for key in ("input_ids", "position_ids", "labels", "loss_mask")
    }
    inputs["attention_mask"] = None
    inputs["modality_inputs"] = None
    inputs["packing_kwargs"] = _packing_kwargs(batch)
    if is_split(batch):
        if dummy_image != "zero":
            raise FailedPrecondition(
                'dummy_image: found "drop" with balance.placement `split`; wanted "zero": every '
                "rank runs its tower, since others wait for its part of the exchange"
            )
        fields = {
            values: batch.get("pixel_values"),
            grid: batch.get("image_grid_thw"),
            "split": (TowerBatch(batch), values, grid),
        }
        inputs["modality_inputs"] = {modality: {encoder: fields}}
        return inputs
    found = images(batch) if dummy_image == "zero" else real_images(batch)
    if found is not None:
        fields = {values: found[0], grid: found[1]}
        dummy = dummy_patches(batch)
        if dummy and dummy_image == "zero":
            fields["dummy_image"] = (dummy, found[0].shape[0])
        inputs["modality_inputs"] = {modality: {encoder: fields}}
    return inputs


def _check_model(
    model: Any,
    token: int,
    dummy_image: str,
    *,
    modality: str = "images",
    encoder: str = "qwen_visual",
    **_: str,
) -> None:
    model = _mimo_model(model)
    config = model.mimo_config
    modalities = config.modality_submodules_spec
    if modality not in modalities:
        raise InvalidArgument(
            "modality: found %r; the model has %s, and would ignore the images"
            % (modality, sorted(modalities))
        )
    encoders = modalities[modality].submodules["encoders"]
    if encoder not in encoders:
        raise InvalidArgument("encoder: found %r; the model has %s" % (encoder, sorted(encoders)))
    found = (config.special_token_ids or {}).get(modality)
    if found != token:
        raise InvalidArgument(
            "special_token_ids[%r] of the model: found %s; wanted the job's image token, %d"
            % (modality, found, token)
        )
    towers = _encoders(model).get(modality, {})  # empty on a rank of the language alone
    if dummy_image == "zero" and encoder in towers and not _accepts(towers[encoder]):
        raise FailedPrecondition(
            "dummy_image: the model's encoder %r of modality %r does not take it: %s"
            % (encoder, modality, _ADVICE)
        )


def _mimo_model(model: Any) -> Any:
    """The MimoModel in its wrappers."""
    while not hasattr(model, "mimo_config"):
        if not hasattr(model, "module"):
            raise InvalidArgument("model: found %s; wanted a MimoModel" % type(model).__name__)
        model = model.module
    return model


def _encoders(model: Any) -> Dict[str, Dict[str, Any]]:
    """Encoders of a MimoModel on this rank, by modality and name."""
    found: Dict[str, Dict[str, Any]] = {}
    for modality, submodules in getattr(model, "modality_submodules", {}).items():
        while not hasattr(submodules, "encoders") and hasattr(submodules, "module"):
            submodules = submodules.module
        found[modality] = dict(getattr(submodules, "encoders", {}).items())
    return found


def _accepts(encoder: Any) -> bool:
    """Whether an encoder takes the argument `dummy_image`: by our hook, on itself or on the
    module in a wrapper, or as a parameter of its own."""
    for module in _unwrapped(encoder):
        if _take_dummy in getattr(module, "_forward_pre_hooks", {}).values():
            return True
        if "dummy_image" in inspect.signature(module.forward).parameters:
            return True
    return False


def _unwrapped(module: Any) -> Iterator[Any]:
    while module is not None:
        yield module
        module = getattr(module, "module", None)


def accept_dummy_images(models: Any) -> Any:
    """Prepares every encoder of MimoModels by `accept_dummy_image`; returns the models.
    A rank without an encoder has nothing to prepare.

        cfg.model.register_pre_wrap_hook(accept_dummy_images)   # Bridge's provider

    Args:
        models: a MimoModel or a list of them, as a pre-wrap hook of Bridge gets it.
    """
    each: List[Any] = list(models) if isinstance(models, (list, tuple)) else [models]
    for model in each:
        for encoders in _encoders(_mimo_model(model)).values():
            for encoder in encoders.values():
                if not _accepts(encoder):
                    accept_dummy_image(encoder)
                _prepared.add(encoder)
    return models


def accept_dummy_image(encoder: Any) -> Any:
    """Makes a vision tower, a torch module, accept the argument `dummy_image` of
    `forward_inputs`; returns the tower.

    The tower runs over all images. The last rows of its output, which belong to the
    dummy image, are multiplied by zero and added to the others, so that the image takes
    part in collectives and gives every weight a gradient of zero. Without a dummy image
    nothing changes. Call it before the tower is wrapped for data parallelism.
    """
    encoder.register_forward_pre_hook(_take_dummy, with_kwargs=True)
    encoder.register_forward_hook(_drop_dummy)
    _prepared.add(encoder)
    return encoder


def accept_split_placement(
    encoder: Any, group: Any = None, *, merge: int = 2, frozen: bool = False
) -> Any:
    """Makes a vision tower, a torch module, take batches of `balance.placement: split`;
    returns the tower.

        tower = accept_split_placement(accept_dummy_image(tower), dp_group)

    The tower runs over this rank's images, and what it returns are the embeddings of this
    rank's text (`ballast.exchange_embeddings`): MimoModel puts them there. It must
    return rows [image tokens, width], or a tuple or list of such tensors, each of which is
    exchanged; the model's projection, if there is one, then runs over the text's rows. Every rank of the
    group calls the model once for each batch. A rank without an image runs its tower over
    a stand-in of one token, times zero. Other batches are not changed. Call it before the
    tower is wrapped for data parallelism.

    Args:
        group, frozen: as `exchange_embeddings` takes them.
        merge: `model.merge` of the job.
    """
    encoder.register_forward_pre_hook(functools.partial(_take_split, merge), with_kwargs=True)
    encoder.register_forward_hook(functools.partial(_exchange_rows, group, frozen))
    return encoder


def _take_split(merge: int, encoder: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
    given = kwargs.pop("split", None)
    encoder.ballast_split = None
    if given is not None:
        encoder.ballast_split, values, grid = given
        kwargs[values], kwargs[grid] = encoder.ballast_split.images(merge)
    return args, kwargs


def _exchange_rows(group: Any, frozen: bool, encoder: Any, args: Any, output: Any) -> Any:
    split, encoder.ballast_split = encoder.ballast_split, None

    def exchanged(part: Any) -> Any:
        if isinstance(part, (list, tuple)):
            return type(part)(exchanged(each) for each in part)
        return split.exchange(part.reshape(-1, part.shape[-1]), group, frozen)

    return output if split is None else exchanged(output)


def _take_dummy(encoder: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
    encoder.ballast_dummy_image = kwargs.pop("dummy_image", None)
    return args, kwargs


def _drop_dummy(encoder: Any, args: Any, output: Any) -> Any:
    dummy, encoder.ballast_dummy_image = encoder.ballast_dummy_image, None
    return output if dummy is None else _without(output, *dummy)


def _without(output: Any, dummy: int, patches: int) -> Any:
    """Each tensor of an output without the dummy's rows, plus zero times them."""
    if isinstance(output, (list, tuple)):
        return type(output)(_without(part, dummy, patches) for part in output)
    rows = output.reshape(-1, output.shape[-1])
    kept = len(rows) - len(rows) * dummy // patches
    if len(rows) * dummy % patches:
        raise InvalidArgument(
            "the tower made %d rows of %d patches, of which %d are the dummy image's: "
            "wanted a whole number of patches a row" % (len(rows), patches, dummy)
        )
    return rows[:kept] + (rows[kept:] * 0).sum()


def _packing_kwargs(batch: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    if batch.get("cu_seqlens") is None:
        return None
    real, padded = batch["cu_seqlens"], batch["cu_seqlens_padded"]
    longest = int(batch["max_seqlen"])
    return {
        "cu_seqlens_q": real,
        "cu_seqlens_kv": real,
        "cu_seqlens_q_padded": padded,
        "cu_seqlens_kv_padded": padded,
        "max_seqlen_q": longest,
        "max_seqlen_kv": longest,
    }
