"""Numbers of tokens between an encoder's ranks and the language ranks that they feed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple

from ..errors import FailedPrecondition, Internal
from ._arrays import from_host

if TYPE_CHECKING:
    from ..batch import Batch
    from ..loader import Loader


def require_tokens_by_patches(model: Mapping[str, Any], layout: str) -> None:
    """Refuses a model whose number of image tokens does not follow from patches alone: as
    HasPlaceholdersByPatches of proto/image/job_images.h."""
    family = model.get("image_family") or {}
    marks = family.get("marks") or {}
    writes_ends = marks.get("before") or marks.get("after")
    if (
        "pinpoints" in str(family.get("rule", "")).lower()
        or (family.get("tokens_a_row") and not marks.get("row_end"))
        or (family.get("tokens_an_image") and not writes_ends)
    ):
        raise FailedPrecondition(
            "model.image_family %s: found images whose tokens do not follow from their patches; "
            "with %s wanted as many for each patch: give both modules the same dp"
            % (family.get("name", ""), layout)
        )


#: Of each encoder: what a step's schedule counts of a sample, the name of its token, and a
#: tensor of its batches.
_COUNTED = {
    "vision": ("patches", "image", "pixel_values"),
    "audio": ("audio_tokens", "audio", "input_features"),
}


class EqualTowers:
    """Checks, of each step, that the encoder's ranks that feed one language rank make as many
    tokens: Megatron cuts the gradient that goes back to them into equal parts.

    The numbers come from the step's schedule, which all ranks have: each refuses the step,
    before its first batch is used.
    """

    def __init__(self, loader: Loader, towers: int, encoder: str = "vision") -> None:
        if encoder == "vision":
            require_tokens_by_patches(loader.job["model"], "vision.dp above language.dp")
        loader.keep_schedules()
        self._languages = next(
            int(m["dp"]) for m in loader.job["modules"] if m["module"] == "language"
        )
        self._towers = towers
        self._encoder = encoder
        self._step = -1

    def __call__(self, batch: Batch) -> None:
        if batch.step != self._step:
            key = _COUNTED[self._encoder][0]
            for number, micro_batch in enumerate(batch.step_schedule()["micro_batches"]):
                counts = [0] * (self._towers * self._languages)
                for sample in micro_batch["samples"]:
                    counts[sample["owner"][self._encoder]] += sample.get(key, 0)
                place = "step %d, micro-batch %d" % (batch.step, number)
                require_equal(counts, self._towers, place, self._encoder)
            self._step = batch.step


def require_equal(counts: List[int], towers: int, place: str, encoder: str = "vision") -> None:
    """Refuses towers of one language rank that have other numbers of patches, or tokens of
    audio.

    Args:
        counts: of each rank of the encoder.
        towers: its ranks that feed a language rank.
    """
    for first in range(0, len(counts), towers):
        own = counts[first : first + towers]
        if len(set(own)) > 1:
            raise FailedPrecondition(
                "%s: found %s %s on %s ranks %d to %d, which feed language rank %d; "
                "wanted as many on each, since Megatron cuts the gradient that goes back into "
                "equal parts: serve samples with as many tokens each (tiles of one size, clips of "
                "one length) with balance.equal_count: true, or choose a %s.dp that divides "
                "language.dp"
                % (place, own, _COUNTED[encoder][0].replace("_", " "), encoder, first,
                   first + towers - 1, first // towers, encoder)
            )  # fmt: skip


class PeerRows:
    """[k, S] token ids of the batch of an encoder's rank: row i has the tokens of its i-th
    language peer's samples, then 0. The numbers come from the step's schedule; nothing
    is fetched."""

    def __init__(self, loader: Loader, peers: int, encoder: str = "vision") -> None:
        model = loader.job["model"]
        self._key, token, self._tensor = _COUNTED[encoder]
        self._merged = 1
        if encoder == "vision":
            require_tokens_by_patches(model, "language.dp above vision.dp")
            self._merged = int(model["merge"]) ** 2
        loader.keep_schedules()
        self._peers = peers
        self._token = int(model["token_ids"][token])
        self._step = -1
        self._samples: Dict[int, Tuple[int, int]] = {}

    def __call__(self, batch: Batch) -> Any:
        if batch.step != self._step:
            self._samples = by_position(batch.step_schedule(), self._key)
            self._step = batch.step
        samples = [self._samples[sample.position] for sample in batch.samples]
        counts = image_tokens(samples, self._peers, self._merged)
        return from_host(rows_of(counts, self._token), batch.get(self._tensor))


def by_position(schedule: Mapping[str, Any], key: str = "patches") -> Dict[int, Tuple[int, int]]:
    """(patches or tokens of audio, language owner) of each sample of a step, by its
    position."""
    return {
        sample["position"]: (sample.get(key, 0), sample["owner"]["language"])
        for micro_batch in schedule["micro_batches"]
        for sample in micro_batch["samples"]
    }


def image_tokens(samples: List[Tuple[int, int]], peers: int, merged: int) -> List[int]:
    """Number of an encoder's tokens for each peer, from the samples of its rank in packing
    order.

    Args:
        samples: (patches, language owner) of each.
        merged: patches that make one token.
    """
    owners = [owner for _, owner in samples]
    first = min(owners, default=0) // peers * peers
    if owners != sorted(owners) or any(not first <= o < first + peers for o in owners):
        raise Internal(
            "an encoder's rank has samples of language ranks %s; wanted %d ranks from a "
            "multiple of %d on, in order" % (owners, peers, peers)
        )
    counts = [0] * peers
    for patches, owner in samples:
        counts[owner - first] += patches // merged
    return counts


def rows_of(counts: List[int], token: int) -> Any:
    """int64 [len(counts), S]: counts[i] times `token`, then another id."""
    import numpy

    places = numpy.arange(max(1, *counts))[None]
    return numpy.where(places < numpy.array(counts)[:, None], token, 0 if token else 1).astype(
        numpy.int64
    )
