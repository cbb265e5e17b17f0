"""Arguments of `forward` of Hugging Face's models whose images are crops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..errors import InvalidArgument, Unimplemented
from ._arrays import concatenate, from_host, full, host_values
from ._dummies import clip_tokens, has_dummy_image, image_tokens, with_columns, with_sample
from ._takes import check
from ._family_forms import MERGED, PADDED, RASTER
from ._family_forms import marked, padded_inputs, raster_inputs, required_form
from ._profiles import find_profile, model_types, read_profile
from .huggingface import _counted, _moved_right, _sums
from .huggingface_audio import _gemma4_tokens, _gemma_clips, _has_clips
from .padded import rows


class Family:
    """Turns batches into the arguments of one model, packed, padded or sample by sample.

        family = ballast.adapters.huggingface_families.Family(model.config)
        loss = model(**family.packed(batch)).loss

    For the models of models/ whose files name checkpoints, as of transformers 5.23. For
    Qwen's models see `huggingface`.

    InternVL's videos are tiles, a frame each, among their sample's images as in the text.
    LLaVA-OneVision's are `pixel_values_videos` [videos, frames, 3, H, W]: its model takes
    videos of one number of frames in a call. Calls whose videos differ in it take
    `features`, and so may all.

    Raises InvalidArgument for a model that it does not know, for a batch whose
    pixels are not in the model's form, and where `image_grid_pinpoints` of LLaVA-NeXT or
    OneVision are not the canvases to which the job cuts images.

    A dummy image (`Batch.dummy_image`) and, of Gemma 4, a dummy clip are the last ones. Their
    placeholders are a sample of their own in a packed row, else they are in padding after the last
    sample: towers run on every rank if they run on any, and their gradients from a dummy are 0.

    Args:
        config: the model's configuration, of which `model_type`, `image_token_id` (or
            `image_token_index`) and what the model's file names are read; for ERNIE the
            tokens around an image, for Gemma 4, Llama 4 and MiniCPM-V how `text_config`
            attends.
        profile: `model.profile` of a job, where it does not follow from the model's
            configuration: the path of a file as in models/, or a name of one there. Default:
            the released model whose checkpoints have this configuration.
        dummy_image: "drop" leaves dummies out. The rank then does not run the tower:
            DistributedDataParallel needs find_unused_parameters for that, and FSDP and
            ZeRO-3 a tower whose weights are whole on each rank.
    """

    def __init__(
        self, config: Any, profile: Optional[str] = None, *, dummy_image: str = "zero"
    ) -> None:
        if dummy_image not in ("zero", "drop"):
            raise InvalidArgument('dummy_image: found %r; wanted "zero" or "drop"' % dummy_image)
        self._drops_dummy = dummy_image == "drop"
        self._type: str = config.model_type
        found = find_profile(config) if profile is None else read_profile(profile)
        if found is None or found.has_token_ids:
            raise InvalidArgument(
                "model_type: found %s, wanted one of %s; Qwen's models take "
                "huggingface.packed" % (self._type, ", ".join(model_types()))
            )
        self._profile = found
        token = getattr(config, "image_token_id", None)
        self._image_token = getattr(config, "image_token_index", None) if token is None else token
        self._around = [
            getattr(config, name)
            for name in ("image_start_token_id", "image_end_token_id")
            if getattr(config, name, None) is not None
        ]
        self._why_not_packed = _why_not_packed(config, found.position_axes)
        self._longest_row = _longest_row(config)
        self._config = config

    def packed(self, batch: Mapping[str, Any]) -> Dict[str, Any]:
        """Arguments for one call over all samples of a batch in one row.

        Keys: `input_ids`, `labels` [1, T], `position_ids`, `use_cache` False and the
        model's own for images. From `position_ids`, which start again at each sample, the models see where samples begin, but only without
        a mask and a cache. Labels are moved one to the right, since these models shift
        them themselves.

        They pass other arguments on to their vision towers, so none are added for Flash
        Attention: it, too, finds the samples by their positions.

        Raises Unimplemented for models that see across the samples of a row, or mix up
        their images, in transformers 5.23, without an error: Gemma 3; Gemma 4 whose
        images' tokens see each other; HunyuanVL, which does not separate samples by
        its four axes; MiniCPM-V, whose language model has linear attention; models with
        a language model that leaves samples together (GPT-OSS) or is unknown; and Llama 4
        for rows of several samples in which a token's place, rather than its position,
        would scale its attention: from `floor_scale` (8192) tokens on.
        """
        check(batch, "huggingface_families.Family")
        why_not = self._why_not_packed or self._why_not_this_row(batch)
        if why_not:
            raise Unimplemented(
                "packed: transformers' %s %s: call `unpacked`, or `padded`, for which "
                "packing.mode: padded makes the rows" % (self._type, why_not)
            )
        images = self._crops(batch)
        text = {**self._text(batch, batch), "position_ids": self._positions(batch)}
        return {
            **self._typed(with_sample(batch, text, self._dummy_tokens(batch))),
            **self._images(batch, images, images.all(self._counts(batch))),
            **self._videos(batch, None),
        }

    def padded(self, batch: Mapping[str, Any]) -> Dict[str, Any]:
        """Arguments for one call over rows of equal length (`packing.mode: padded`).

        Keys: as of `packed`, with an `attention_mask` [B, S]. A packed batch is
        padded first (`padded.rows`). Gemma 4 takes audio, too, as by
        `huggingface_audio.gemma4`.
        """
        inputs = rows(batch, pad=0)
        hears = self._type == "gemma4"
        images = self._crops(batch, hears)
        tokens = self._dummy_tokens(batch)
        clips: Dict[str, Any] = {}
        if hears and _has_clips(batch):
            clips = _gemma_clips(batch, not self._drops_dummy)
            if not self._drops_dummy:
                tokens += clip_tokens(batch, _gemma4_tokens(batch))
        text = {
            **self._text(batch, inputs),
            "position_ids": inputs["position_ids"],
            "attention_mask": inputs["attention_mask"],
        }
        return {
            **self._typed(with_columns(text, tokens)),
            **self._images(batch, images, images.all(self._counts(batch))),
            **self._videos(batch, None),
            **clips,
        }

    def unpacked(
        self,
        batch: Mapping[str, Any],
        images_per_sample: Optional[Sequence[int]] = None,
        videos_per_sample: Optional[Sequence[int]] = None,
    ) -> List[Dict[str, Any]]:
        """Arguments for one call per sample of a batch, without padding.

        Args:
            images_per_sample: number of images of each sample, for InternVL with its
                videos. Default: from the batch.
            videos_per_sample: number of videos of each sample, of LLaVA-OneVision alone.
                Default: from the batch.
        """
        check(batch, "huggingface_families.Family")
        if videos_per_sample is None:
            videos_per_sample = list(getattr(batch, "videos_per_sample", []))
        if images_per_sample is None:
            images_per_sample = list(batch.images_per_sample)  # type: ignore[attr-defined]
            if batch.get("pixel_values_videos") is None:  # tiles among the images' tiles
                for i, videos in enumerate(videos_per_sample):
                    images_per_sample[i] += videos
        real = host_values(batch, "cu_seqlens").tolist()
        places = host_values(batch, "cu_seqlens_padded").tolist()
        images = self._crops(batch)
        first, video, samples = 0, 0, []
        for i in range(len(real) - 1):
            tokens = slice(places[i], places[i] + real[i + 1] - real[i])
            part = _Part(first, first + images_per_sample[i], [images_per_sample[i]])
            first = part.last
            own = videos_per_sample[i] if videos_per_sample else 0
            shown, video = slice(video, video + own), video + own
            row = batch["input_ids"][:, tokens]
            text = {
                **self._text(batch, {"input_ids": row, "labels": batch["labels"][:, tokens]}),
                "position_ids": batch["position_ids"][..., tokens],
                "attention_mask": full(row, row.shape, 1),
            }
            if i == len(real) - 2:
                text = with_columns(text, self._dummy_tokens(batch))
                part = images.with_dummy(part)
            samples.append(
                {
                    **self._typed(text),
                    **self._images(batch, images, part),
                    **self._videos(batch, shown),
                }
            )
        return samples

    def _why_not_this_row(self, batch: Mapping[str, Any]) -> str:
        places = host_values(batch, "cu_seqlens_padded")
        if len(places) <= 2 or self._longest_row is None or places[-1] <= self._longest_row:
            return ""
        return (
            "scales attention by the place in the row, so it takes rows of up to %d tokens if "
            "they hold several samples, and found %d" % (self._longest_row, places[-1])
        )

    def features(self, model: Any, inputs: Mapping[str, Any]) -> Dict[str, Any]:
        """`inputs` with what the tower makes of their pixels (`mm_encoder_outputs`) in
        place of them, for LLaVA-OneVision. The tower runs once for images, and once for
        the videos of each number of frames.
        """
        import torch

        out = dict(inputs)
        made: Dict[str, Any] = {}
        if "pixel_values" in out:
            given = {key: out.pop(key) for key in ("image_sizes", "batch_num_images")}
            made["image"] = model.get_image_features(
                out.pop("pixel_values"), return_dict=True, **given
            )
        if "pixel_values_videos" in out:
            videos = list(out.pop("pixel_values_videos"))
            rows: List[Any] = [None] * len(videos)
            for frames in sorted({len(video) for video in videos}):
                alike = [i for i, video in enumerate(videos) if len(video) == frames]
                made["video"] = model.get_video_features(
                    torch.stack([videos[i] for i in alike]), return_dict=True
                )
                for i, own in zip(alike, made["video"].pooler_output):
                    rows[i] = own
            made["video"].pooler_output = torch.cat(rows)[None]
        if made:
            out["mm_encoder_outputs"] = made
        return out

    def _crops(self, batch: Mapping[str, Any], audio: bool = False) -> _Images:
        if self._profile.videos != "RULE_LLAVA_ONEVISION":
            check(batch, "huggingface_families.Family", "videos")
        if self._profile.rule == "RULE_PINPOINTS":
            _require_canvases(self._config, getattr(batch, "image_family", {}))
        return _Images.of(batch, audio, self._keeps_dummy(batch))

    def _keeps_dummy(self, batch: Mapping[str, Any]) -> bool:
        return has_dummy_image(batch) and not self._drops_dummy

    def _dummy_tokens(self, batch: Mapping[str, Any]) -> List[int]:
        """The placeholders of a dummy image, as many as the model makes rows of it."""
        if not self._keeps_dummy(batch):
            return []
        _, height, width = host_values(batch, "image_grid_thw")[-1].tolist()
        merge = getattr(batch, "image_merge", 0) or 1
        height, width = height // merge, width // merge
        if self._profile.rule == "RULE_PINPOINTS":
            rows, columns = self._smallest_canvas(batch)
            # A thumbnail, then the tiles with a newline after each row.
            return image_tokens(batch, height * width + rows * height * (columns * width + 1))
        if self._type == "hunyuan_vl":
            return image_tokens(batch, height * (width + 1) + 2)
        return image_tokens(batch, height * width)

    def _smallest_canvas(self, batch: Mapping[str, Any]) -> List[int]:
        """Rows and columns of its tiles. An image of its size is cut to it without padding."""
        tile = batch["pixel_values"].shape[-1]
        pairs = [list(map(int, pair)) for pair in self._config.image_grid_pinpoints]
        return [side // tile for side in min(pairs, key=lambda pair: pair[0] * pair[1])]

    def _videos(self, batch: Mapping[str, Any], part: Optional[slice]) -> Dict[str, Any]:
        """The videos of a part of the batch; none without videos. [videos, frames, 3, H, W],
        or a list of [frames, 3, H, W] where their numbers of frames differ."""
        pixels: Any = batch.get("pixel_values_videos")
        if pixels is None:
            return {}
        frames = host_values(batch, "video_grid_thw")[:, 0].tolist()
        begins = _sums(frames)
        own = range(len(frames))[part if part is not None else slice(None)]
        if not own:
            return {}
        if len({frames[i] for i in own}) > 1:
            return {"pixel_values_videos": [pixels[begins[i] : begins[i + 1]] for i in own]}
        some = pixels[begins[own[0]] : begins[own[-1] + 1]]
        return {"pixel_values_videos": some.reshape(len(own), frames[own[0]], *some.shape[1:])}

    def _text(self, batch: Mapping[str, Any], inputs: Mapping[str, Any]) -> Dict[str, Any]:
        labels = _moved_right(batch, inputs["labels"])
        return {"input_ids": inputs["input_ids"], "labels": labels, "use_cache": False}

    def _typed(self, inputs: Dict[str, Any]) -> Dict[str, Any]:
        """With what tells the tokens of images from the text, for models that want it."""
        if self._type in _TYPES:
            tokens = [self._image_token]
            if self._type == "ernie4_5_vl_moe":
                tokens += self._around
            inputs[_TYPES[self._type]] = marked(inputs["input_ids"], tokens)
        return inputs

    def _positions(self, batch: Mapping[str, Any]) -> Any:
        positions = batch["position_ids"]
        if len(positions.shape) == 3:  # MRoPE: another axis separates the samples
            return concatenate([_counted(batch, positions), positions], 0)
        return positions

    def _counts(self, batch: Mapping[str, Any]) -> List[int]:
        """Images of each sample, which decide where an image is cut only if it is alone."""
        if not self._profile.cut_alone or batch.get("pixel_values") is None:
            return []
        counts = list(batch.images_per_sample)  # type: ignore[attr-defined]
        return counts + [1] * self._keeps_dummy(batch)

    def _images(self, batch: Mapping[str, Any], images: _Images, part: _Part) -> Dict[str, Any]:
        """The arguments for the images of a part of the batch; none without images."""
        import numpy

        pixels: Any = batch.get("pixel_values")
        if pixels is None or part.last == part.first:
            return {}
        layout, rule = self._profile.layout, self._profile.rule
        form = required_form(batch, layout, self._type)
        crops = slice(images.crops[part.first], images.crops[part.last])
        if form == PADDED:
            return padded_inputs(batch, crops)
        if form in (MERGED, RASTER):
            patches = pixels[images.patches[crops.start] : images.patches[crops.stop]]
            if form == RASTER:
                return raster_inputs(batch, patches, crops, layout)
            return {"pixel_values": patches, "image_grid_thw": batch["image_grid_thw"][crops]}
        pixels = pixels[crops]
        has_dummy = images.has_dummy and part.last == len(images.crops) - 1
        if rule == "RULE_PINPOINTS" and has_dummy:
            rows, columns = self._smallest_canvas(batch)
            pixels = concatenate([pixels, *[pixels[-1:]] * (rows * columns)], 0)
        if rule == "RULE_LONGEST_EDGE_TILES":
            return {"pixel_values": pixels[None]}
        inputs = {"pixel_values": pixels}
        if rule == "RULE_LONGEST_EDGE":
            inputs["image_sizes"] = batch["imgs_sizes"][crops]
        if rule == "RULE_PINPOINTS":
            sizes = batch["image_sizes"][part.first : part.last]
            if has_dummy:
                last = numpy.array([[rows * pixels.shape[-2], columns * pixels.shape[-1]]])
                sizes = concatenate([sizes[:-1], from_host(last, sizes)], 0)
            inputs["image_sizes"] = sizes
        if self._profile.cut_alone:
            inputs["batch_num_images"] = part.counts
        return inputs


def _require_canvases(config: Any, family: Mapping[str, Any]) -> None:
    """Compares the canvases of a model with the job's, in order: of two that waste as much of
    an image the first is taken, and with another the model puts the crops together wrongly,
    often without an error."""
    canvases = [[canvas["height"], canvas["width"]] for canvas in family.get("canvases", [])]
    found = [list(map(int, pair)) for pair in getattr(config, "image_grid_pinpoints", None) or []]
    if canvases and found and found != canvases:
        raise InvalidArgument(
            "image_grid_pinpoints: found %s in the model's configuration, wanted the job's %s, as "
            "height and width: set model.config.image_grid_pinpoints to these, or serve "
            "model.rules: transformers (docs/families.md, Whose rules)" % (found, canvases)
        )


#: model_type -> the argument that separates image tokens from text: for Gemma, since the
#: tokens of an image see each other; for ERNIE, since they have separate experts, as have
#: the tokens around an image.
_TYPES = {
    "ernie4_5_vl_moe": "moe_mm_token_type_ids",
    "gemma3": "token_type_ids",
    "gemma4": "mm_token_type_ids",
}


def _why_not_packed(config: Any, position_axes: int) -> str:
    """Why a model takes no row of several samples; empty if it does."""
    text = getattr(config, "text_config", None)
    if config.model_type == "gemma3" or (
        config.model_type == "gemma4"
        and getattr(text, "use_bidirectional_attention", None) is not None
    ):
        return "mixes up the images of the samples in a row"
    if position_axes == 4:
        return "lets the samples of a row see each other"
    if "linear_attention" in (getattr(text, "layer_types", None) or []):
        return "has linear attention, which runs on from one sample of a row into the next"
    language = getattr(text, "model_type", None)
    if language is not None and language not in _APART:
        return (
            "has the language model %s, which lets the samples of a row see each other or is "
            "not known to keep them apart" % language
        )
    return ""


#: Language models that find the samples of a row by their positions, seen in transformers
#: 5.23. GPT-OSS, among others, does not.
_APART = {
    "arcee", "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "ernie4_5", "ernie4_5_moe",
    "ernie4_5_vl_moe_text", "exaone4", "gemma", "gemma2", "gemma3_text", "gemma4_text", "glm",
    "glm4", "glm4_moe", "glm4v_moe_text", "glm4v_text", "granite", "granitemoe",
    "helium", "llama", "llama4_text", "ministral", "ministral3", "mistral", "mixtral", "olmo",
    "olmo2", "olmo3", "olmoe", "phi", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
    "seed_oss", "smollm3", "starcoder2",
}  # fmt: skip


def _longest_row(config: Any) -> Optional[int]:
    """Tokens that a row of several samples may have; None: any number."""
    text: Any = getattr(config, "text_config", None)
    if not getattr(text, "attn_temperature_tuning", False):
        return None
    # Tokens at places from floor_scale - 1 on are scaled, in layers without rotary positions.
    return int(text.floor_scale) - 1


@dataclass(frozen=True)
class _Part:
    """Images [first, last) of a batch, and how many each of their samples has."""

    first: int
    last: int
    counts: List[int]


@dataclass(frozen=True)
class _Images:
    """Where the crops of a batch's images begin."""

    crops: List[int]  #: [images + 1]: first crop of each
    patches: List[int]  #: [crops + 1]: first patch of each
    has_dummy: bool  #: the last image is one; otherwise there is none, or it is left out

    @staticmethod
    def of(batch: Mapping[str, Any], audio: bool, keeps_dummy: bool) -> _Images:
        adapter = "huggingface_families.Family"
        check(batch, adapter, "split placement", "text without its pixels")
        if not audio:
            check(batch, adapter, "audio")
        if batch.get("pixel_values") is None:
            return _Images([0], [0], False)
        grids = host_values(batch, "image_grid_thw").tolist()
        counts = [1] * len(grids)
        if batch.get("crops_per_image") is not None:
            counts = host_values(batch, "crops_per_image").tolist()
        if has_dummy_image(batch) and not keeps_dummy:
            counts = counts[:-1]
        return _Images(_sums(counts), _sums([t * h * w for t, h, w in grids]), keeps_dummy)

    def all(self, counts: List[int]) -> _Part:
        return _Part(0, len(self.crops) - 1, counts)

    def with_dummy(self, part: _Part) -> _Part:
        """The part of the last sample, with the dummy image."""
        if not self.has_dummy:
            return part
        return _Part(part.first, part.last + 1, [*part.counts, 1])
