"""Identities and totals of the samples in a batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """One sample of a batch."""

    name: str  #: "SOURCE:ORDINAL"
    source: int  #: number of the source in the configuration
    ordinal: int  #: number of the sample in the source's index
    position: int  #: place in the global order
    #: The sample could not be read. Grey images and unsupervised tokens stand in
    #: for it. On a GPU this is known only after the device has packed the batch.
    placeholder: bool


@dataclass(frozen=True)
class Totals:
    """Exact sums over samples. `padded_` sums use each sample's aligned length."""

    samples: int
    tokens: int
    tokens_squared: int  #: sum of the squares of the samples' lengths
    padded_tokens: int
    padded_tokens_squared: int
    label_tokens: int  #: tokens that the loss counts
    patches: int  #: of images and videos
    images: int  #: without videos
    videos: int
