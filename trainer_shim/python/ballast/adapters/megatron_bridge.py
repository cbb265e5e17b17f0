"""Arguments of MimoModel, for Megatron-Bridge's MIMO forward step (with
`megatron_mimo_scalable_dp`) and `mimo_forward_step` of Megatron-LM's examples."""

from __future__ import annotations

import functools
import inspect
import weakref
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ..errors import FailedPrecondition, InvalidArgument
from ._arrays import host_values, on_first_stage, sequence_bounds, where
from ._images import dummy_patches
from ._takes import check
from ._encoder_inputs import Encoders, arguments_of, by_name, clip_arguments, clips_of, images_of
from ._encoder_inputs import media_tokens, radio, with_videos
from ._family_forms import MERGED, RASTER, form_of
from ._layout import Layout
from ._peers import EqualTowers, PeerRows
from ._split import TowerBatch, is_split

if TYPE_CHECKING:
    from ..batch import Batch
    from ..loader import Loader
    from .megatron_split import Batches

__all__ = [
    "Mimo", "accept_dummy_image", "accept_dummy_images", "accept_split_placement",
    "forward_inputs", "radio",
]  # fmt: skip

_CONSUMER = "MimoModel"
_DUMMY = ("zero", "drop")
_ALL = (1, 1)  # of an encoder's rows a dummy's: a rank gets a dummy clip where it has no other
_ENCODER = "qwen_visual"
_AUDIO, _AUDIO_ENCODER = "audios", "whisper_encoder"
_ADVICE = (
    "a micro-batch whose images or clips are on other ranks brings a dummy, which MimoModel hands "
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
    layout: a vision module with pp or cp above 1, dp sizes of which neither divides the
    other, a language module with cp above 1 (MimoModel slices the sequence itself:
    docs/megatron.md says how to configure such a job).

    An encoder's rank that feeds k > 1 language ranks gets `input_ids` [k, S], from which
    MimoModel learns how many of its rows go to each. Each row holds the image tokens or
    audio tokens of one peer's samples, and no text. Where k > 1 ranks of an encoder feed
    one language rank, a step in which they have other numbers of tokens raises
    FailedPrecondition on all ranks.

    In a job with videos, one encoder takes images and videos of merge order in the order
    of the text, and `input_ids` has the image token for both: the encoder's arguments
    have the same names. A vision rank without text refuses a sample with both.

    In a job with the module `audio`, clips are a separate modality, with images or alone.
    Each encoder may have separate ranks. A job whose samples have clips and which has
    no module `audio` raises FailedPrecondition: its text would be trained without them.

    In a job with `balance.placement: split` and modules on separate ranks, any dp sizes
    go together, and `megatron_split.pipeline_communicator` moves the rows.

    Args:
        batches: what the schedule takes the batches of, in such a job.
        model: the MimoModel, if it is at hand, wrapped or not. MimoModel ignores inputs
            of a modality that it does not know, and would train without images: here
            names that are not the model's, and another image token, are errors, and so is
            an encoder that cannot take a dummy image.
        modality, encoders, dummy_image, audio_modality, audio_encoders: as `forward_inputs`
            takes them.
    """

    def __init__(
        self,
        loader: Loader,
        *,
        model: Any = None,
        batches: Optional[Batches] = None,
        modality: str = "images",
        encoders: Encoders = _ENCODER,
        dummy_image: str = "zero",
        audio_modality: str = _AUDIO,
        audio_encoders: Encoders = _AUDIO_ENCODER,
    ) -> None:
        layout = Layout.of(loader.job)
        if layout.apart and batches is None:
            raise FailedPrecondition(
                "batches: found none; wanted megatron_split.Batches with its communicator: "
                "Megatron's own takes the rows of balance.placement `split` to other texts"
            )
        if batches is not None and not layout.apart:
            raise FailedPrecondition(
                "batches: found them in a job without balance.placement `split` of modules on "
                "separate ranks; wanted None"
            )
        self._batches = batches
        self._names: Dict[str, Any] = {
            "modality": modality, "encoders": encoders, "dummy_image": dummy_image,
            "audio_modality": audio_modality, "audio_encoders": audio_encoders,
        }  # fmt: skip
        forward_inputs({}, **self._names)  # raises for a wrong option
        advice = "give its work to data-parallel ranks"
        for encoder in (layout.vision, layout.audio):
            if encoder is not None:
                encoder.must_be_one("pp", _CONSUMER, advice)
                encoder.must_be_one("cp", _CONSUMER, advice)
        if layout.audio and layout.split and not layout.apart:
            raise FailedPrecondition(
                "balance.placement: found split with the module audio in processes of all modules, "
                "in which %s does not move its rows; wanted topology.colocated: false, paired, or "
                'ballast.exchange_embeddings with module="audio"' % _CONSUMER
            )
        self._hears = layout.audio is not None
        if layout.language is not None:
            layout.language.must_be_one(
                "cp", _CONSUMER,
                "it cuts whole batches itself. Name the context ranks as tensor ranks: "
                "{tp: TP * CP, cp: 1}, and packing.align: 2 * CP",
            )  # fmt: skip
        job = loader.job["model"]
        image, tokens = int(job["token_ids"].get("image") or 0), media_tokens(job)
        self._videos: Optional[Tuple[int, Tuple[int, int]]] = None
        if tokens is not None:
            self._videos = int(job["merge"]), tokens
        self._looked = model is not None
        if model is not None and (layout.vision is not None or layout.audio is None):
            _check_model(
                model, image, tokens[1] if tokens else None, dummy_image, modality,
                list(by_name(encoders)),
            )  # fmt: skip
        if model is not None and layout.audio is not None:
            _check_modality(
                model, audio_modality, list(by_name(audio_encoders)), "clips",
                int(job["token_ids"].get("audio") or 0), dummy_image,
            )  # fmt: skip
        # Else language ranks get embeddings from processes that have the tower.
        self._has_tower = layout.colocated and layout.vision is not None
        self._rows: Dict[str, PeerRows] = {}  # of an encoder's rank, by a tensor of its batch
        self._towers = []
        for encoder, tensor in ((layout.vision, "pixel_values"), (layout.audio, "input_features")):
            towers, peers = (1, 1) if layout.apart else layout.peers(_CONSUMER, encoder)
            if encoder is not None and peers > 1:
                self._rows[tensor] = PeerRows(loader, peers, encoder.name)
            if encoder is not None and towers > 1:
                self._towers.append(EqualTowers(loader, towers, encoder.name))

    def check_prepared(self) -> None:
        """Raises FailedPrecondition if no encoder of this process was prepared for the
        dummy images that this hands over: for a rank of an encoder, once its model is
        made. `Mimo(loader, model=model)` looks at the model itself."""
        if self._names["dummy_image"] == "zero" and not self._looked and not _prepared:
            raise FailedPrecondition("dummy_image: found no encoder that takes it: " + _ADVICE)

    def __call__(self, batch: Batch) -> Dict[str, Any]:
        if self._has_tower and on_first_stage(batch):
            check(batch, "megatron_bridge.Mimo", "text without its pixels")
            if batch.get("input_features") is None:
                check(batch, "megatron_bridge.Mimo", "audio")
        clips = getattr(getattr(batch, "totals", None), "clips", 0)
        if clips and not self._hears:
            raise FailedPrecondition(
                "found the text of %d clips of audio in a job without the module audio; %s would "
                "train without them: add it to topology.modules, or leave out the sources with "
                "clips" % (clips, _CONSUMER)
            )
        for towers in self._towers:
            towers(batch)
        if self._batches is not None and self._batches.taken is not batch:
            raise FailedPrecondition(
                "batches: found a batch that was not taken of them last; wanted them as the "
                "schedule's data_iterator, whose rows the communicator moves"
            )
        apart = self._batches is not None
        inputs = _inputs(batch, **self._names, videos=self._videos, apart=apart)
        if batch.get("position_ids") is None:
            for tensor, of_peers in self._rows.items():
                if batch.get(tensor) is not None:
                    inputs["input_ids"] = of_peers(batch)
        return inputs


def forward_inputs(
    batch: Mapping[str, Any],
    *,
    modality: str = "images",
    encoders: Encoders = _ENCODER,
    dummy_image: str = "zero",
    audio_modality: str = _AUDIO,
    audio_encoders: Encoders = _AUDIO_ENCODER,
) -> Dict[str, Any]:
    """MimoModel's arguments, from the batch alone.

    `Mimo` does the same and checks the job's layout; a vision rank with several
    language peers, and a job with videos, need `Mimo`.

    Keys: `input_ids`, `labels`, `loss_mask` [1, T], `position_ids` [3, 1, T] or
    [1, T], `attention_mask` (None: the segments replace it), `modality_inputs`
    {MODALITY: {ENCODER: arguments}} and `packing_kwargs`. Values that the rank does not
    have are None: labels on a first pipeline stage, input ids on a last one,
    `modality_inputs` on a language rank without an encoder and in a micro-batch without
    an image.

    `packing_kwargs` has `cu_seqlens_q`, `cu_seqlens_kv`, `cu_seqlens_q_padded` and
    `cu_seqlens_kv_padded`, all of them the places of the samples, int32 [n+1], and
    `max_seqlen_q`, `max_seqlen_kv` as ints: the arguments of PackedSeqParams except
    `qkv_format="thd"`, which the model sets. An encoder's rank, which has no text, gets
    None, and so does a padded batch (`packing.mode: padded`), whose tensors are [B, S]
    and [3, B, S]: attention is causal, so padding at the end of a row needs no mask,
    and MimoModel refuses one with context parallelism.

    With `balance.placement: split` the tower also gets the argument `split`, for which
    `accept_split_placement` prepares it: one without refuses the argument.

    Args:
        modality: the name that the model was built with.
        encoders: the modality's encoders: a name, names, or for each name its arguments:
            {argument: key of the batch}, a function from the images (a mapping with the
            batch's keys) to a dictionary, or None. Each encoder gets all images; of
            several, the modality's class combines the rows of an image, since Megatron's
            would mix up different images. Without arguments an encoder gets
            what `model.image_form` says:

            | form | arguments |
            | --- | --- |
            | merge_order | `hidden_states` [P, V], `grid_thw` int64 [images, 3] |
            | tiles | `pixel_values` [crops, 3, H, W] |
            | raster | `pixel_values` [P, V], `imgs_sizes` int64 [crops, 2] |
            | padded | `pixel_values`, `pixel_attention_mask` and `spatial_shapes` of crops |

            `radio` is such a function.
        dummy_image: "zero" passes a dummy image (`Batch.dummy_image`) to the tower
            under the key `dummy_image`, for which `accept_dummy_image` prepares the
            tower; "drop" leaves it out, for a tower without collectives. Gradients are
            equal. Likewise for a dummy clip (`Batch.dummy_clip`), which is the only clip.
        audio_modality: the name of the modality of clips.
        audio_encoders: its encoders, as `encoders`. Without arguments an encoder gets
            `input_features` [N, M, T], zeros after each of the N clips, and `seq_lengths` int64
            [N], the frames that count; a mapping may also name `feature_attention_mask`
            [N, T]. It returns the rows of all clips, one after another, without padding.
    """
    return _inputs(
        batch, modality, encoders, dummy_image, None,
        audio_modality=audio_modality, audio_encoders=audio_encoders,
    )  # fmt: skip


def _inputs(
    batch: Mapping[str, Any],
    modality: str,
    encoders: Encoders,
    dummy_image: str,
    videos: Optional[Tuple[int, Tuple[int, int]]],
    apart: bool = False,
    audio_modality: str = _AUDIO,
    audio_encoders: Encoders = _AUDIO_ENCODER,
) -> Dict[str, Any]:
    """`videos`: `model.merge`, and the placeholders of images and videos. `apart`: the rows
    move between the modules by the batch's plan."""
    if dummy_image not in _DUMMY:
        raise InvalidArgument('dummy_image: found %r; wanted "zero" or "drop"' % (dummy_image,))
    check(batch, "megatron_bridge.Mimo")
    if batch.get("position_ids") is not None:
        check(batch, "megatron_bridge.Mimo", "parts of context ranks")
    inputs: Dict[str, Any] = {
        key: batch.get(key) for key in ("input_ids", "position_ids", "labels", "loss_mask")
    }
    inputs["attention_mask"] = None
    inputs["modality_inputs"] = None
    inputs["packing_kwargs"] = _packing_kwargs(batch)
    if is_split(batch) and not apart:
        if dummy_image != "zero":
            raise FailedPrecondition(
                'dummy_image: found "drop" with balance.placement `split`; wanted "zero": every '
                "rank runs its tower, since others wait for its part of the exchange"
            )
        check(batch, "megatron_bridge.Mimo", "other forms of pixels")
        tower = TowerBatch(batch)
        fields = [arguments_of(batch, each) for each in by_name(encoders).values()]
        values, grid = (
            next(name for name, value in fields[0].items() if value is batch[key])
            for key in ("pixel_values", "image_grid_thw")
        )
        fields[0]["split"] = (tower, values, grid)
        inputs["modality_inputs"] = {modality: dict(zip(by_name(encoders), fields))}
        return inputs
    if not apart:
        check(batch, "megatron_bridge.Mimo", "split placement")
    found = images_of(batch, dummy=dummy_image == "zero")
    if videos is None:
        check(batch, "megatron_bridge.Mimo", "videos")
    else:
        merge, (image, video) = videos
        found = with_videos(found, batch, merge, (image, video), split=apart)
        if inputs["input_ids"] is not None:
            inputs["input_ids"] = where(inputs["input_ids"] != video, inputs["input_ids"], image)
    if found is not None:
        each = {name: arguments_of(found, of) for name, of in by_name(encoders).items()}
        if dummy_image == "zero" and dummy_patches(batch):
            for fields_of in each.values():
                fields_of["dummy_image"] = _dummy_part(batch, found)
        inputs["modality_inputs"] = {modality: each}
    clips = clips_of(batch, split=apart, dummy=dummy_image == "zero")
    if clips:
        each = {name: clip_arguments(clips, of) for name, of in by_name(audio_encoders).items()}
        if getattr(batch, "dummy_clip", False):
            for fields_of in each.values():
                fields_of["dummy_image"] = _ALL
        inputs["modality_inputs"] = {**(inputs["modality_inputs"] or {}), audio_modality: each}
    return inputs


def _dummy_part(batch: Mapping[str, Any], found: Mapping[str, Any]) -> Tuple[int, ...]:
    """(patches of the dummy image, of all images), and, where an encoder's output may have an
    entry for each crop, the number of crops."""
    dummy = dummy_patches(batch)
    if form_of(found) in (MERGED, RASTER):
        return dummy, int(found["pixel_values"].shape[0])
    grids = host_values(batch, "image_grid_thw")
    return dummy, int(grids.prod(1).sum()), len(grids)


def _check_model(
    model: Any,
    image: int,
    video: Optional[int],
    dummy_image: str,
    modality: str,
    encoders: List[str],
) -> None:
    tokens = _check_modality(model, modality, encoders, "images", image, dummy_image)
    config = _mimo_model(model).mimo_config
    modalities = config.modality_submodules_spec
    combines = vars(modalities[modality].module).get("combine_embeddings")
    if len(encoders) > 1 and combines is None:
        raise InvalidArgument(
            "encoders: found %r of %s, whose combine_embeddings puts all rows of one encoder after "
            "all rows of another, so that images of a batch would change places; wanted a class "
            "that overrides it, for example by torch.cat(embeddings, dim=-1)"
            % (encoders, modalities[modality].module.__name__)
        )
    if video is not None and video in tokens.values():
        raise InvalidArgument(
            "special_token_ids of the model: found %s, with the job's video token, %d, for a "
            "modality that would get no input; wanted one encoder of images and videos, with the "
            "image token" % (config.special_token_ids, video)
        )


def _check_modality(
    model: Any, modality: str, encoders: List[str], inputs: str, token: int, dummy_image: str
) -> Dict[str, int]:
    """Checks a modality's names, its token, and that its encoders take a dummy; returns the
    tokens of the others. `inputs`: "images" or "clips"."""
    model = _mimo_model(model)
    config = model.mimo_config
    modalities = config.modality_submodules_spec
    prefix = "" if inputs == "images" else "audio_"
    if modality not in modalities:
        raise InvalidArgument(
            "%smodality: found %r; the model has %s, and would ignore the %s"
            % (prefix, modality, sorted(modalities), inputs)
        )
    known = modalities[modality].submodules["encoders"]
    if set(encoders) != set(known):
        raise InvalidArgument(
            "%sencoders: found %r; the model has %s" % (prefix, encoders, sorted(known))
        )
    tokens = dict(config.special_token_ids or {})
    found = tokens.pop(modality, None)
    if found != token:
        raise InvalidArgument(
            "special_token_ids[%r] of the model: found %s; wanted the job's %s token, %d"
            % (modality, found, "image" if inputs == "images" else "audio", token)
        )
    towers = _encoders(model).get(modality, {})  # empty on a rank of the language alone
    for encoder in encoders:
        if dummy_image == "zero" and encoder in towers and not _accepts(towers[encoder]):
            raise FailedPrecondition(
                "dummy_image: the model's encoder %r of modality %r does not take it: %s"
                % (encoder, modality, _ADVICE)
            )
    return tokens


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
    module in a wrapper, or as its own parameter."""
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
    """Makes an encoder of images or clips, a torch module, accept the argument `dummy_image`
    of `forward_inputs`; returns the encoder.

    The encoder runs over all images, or all clips. The last rows of its output, which belong
    to the dummy, are multiplied by zero and added to the others, so that the dummy takes
    part in collectives and gives every weight a gradient of zero. Without a dummy
    nothing changes. Call it before the encoder is wrapped for data parallelism.
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


def _without(output: Any, dummy: int, patches: int, crops: int = 0) -> Any:
    """Each tensor of an output without the dummy's rows, plus zero times them. Of [crops,
    rows, width] these are the last crop, else as many rows as the dummy has patches."""
    if isinstance(output, (list, tuple)):
        return type(output)(_without(part, dummy, patches, crops) for part in output)
    if crops and output.dim() == 3 and output.shape[0] == crops:
        return output[:-1] + (output[-1:] * 0).sum()
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
    return sequence_bounds(batch)
