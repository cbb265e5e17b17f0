"""The image tokens that a vision rank makes for each language rank that it feeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple

from ..errors import Internal
from ._arrays import from_host

if TYPE_CHECKING:
    from ..batch import Batch
    from ..loader import Loader


class PeerRows:
    """[k, S] token ids of a vision rank's batch: row i has the image tokens of its i-th
    language peer's samples, then 0. The numbers come from the step's schedule; nothing
    is fetched."""

    def __init__(self, loader: Loader, peers: int) -> None:
        model = loader.job["model"]
        self._loader = loader
        self._peers = peers
        self._token = int(model["token_ids"]["image"])
        self._merged = int(model["merge"]) ** 2
        self._step = -1
        self._samples: Dict[int, Tuple[int, int]] = {}

    def __call__(self, batch: Batch) -> Any:
        if batch.step != self._step:
            self._samples = by_position(self._loader.schedule())
            self._step = batch.step
        samples = [self._samples[sample.position] for sample in batch.samples]
        counts = image_tokens(samples, self._peers, self._merged)
        return from_host(rows_of(counts, self._token), batch["pixel_values"])


def by_position(schedule: Mapping[str, Any]) -> Dict[int, Tuple[int, int]]:
    """(patches, language owner) of each sample of a step, by its position."""
    return {
        sample["position"]: (sample["patches"], sample["owner"]["language"])
        for micro_batch in schedule["micro_batches"]
        for sample in micro_batch["samples"]
    }


def image_tokens(samples: List[Tuple[int, int]], peers: int, merged: int) -> List[int]:
    """Number of image tokens for each peer, from a vision rank's samples in packing
    order.

    Args:
        samples: (patches, language owner) of each.
        merged: patches that make one token.
    """
    owners = [owner for _, owner in samples]
    first = min(owners, default=0) // peers * peers
    if owners != sorted(owners) or any(not first <= o < first + peers for o in owners):
        raise Internal(
            "a vision rank's samples belong to language ranks %s; wanted %d ranks from a "
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
