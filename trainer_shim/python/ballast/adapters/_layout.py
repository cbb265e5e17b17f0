"""The job's parallel sizes, and the layouts that a trainer cannot run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from ..errors import FailedPrecondition


@dataclass(frozen=True)
class Module:
    """Parallel sizes of one module, as `topology.modules` has them."""

    name: str
    dp: int
    tp: int = 1
    pp: int = 1
    cp: int = 1
    align: int = 1  #: a packed sample's length is a multiple of it

    def must_be_one(self, size: str, consumer: str, advice: str) -> None:
        """Refuses a module that is split `size` ways ("pp", "cp")."""
        found = getattr(self, size)
        if found != 1:
            raise FailedPrecondition(
                "topology.modules.%s.%s: found %d; %s takes 1: %s"
                % (self.name, size, found, consumer, advice)
            )


@dataclass(frozen=True)
class Layout:
    """The modules of a job and whether one process holds a rank of each."""

    vision: Optional[Module]
    language: Optional[Module]
    colocated: bool
    split: bool = False  #: balance.placement is `split`
    audio: Optional[Module] = None

    @staticmethod
    def of(job: Mapping[str, Any]) -> Layout:
        """From `Loader.job`. A size that the server leaves out counts as 1."""
        modules: Dict[str, Module] = {}
        for entry in job["modules"]:
            sizes = {key: entry.get(key) or 1 for key in ("dp", "tp", "pp", "cp", "align")}
            modules[entry["module"]] = Module(entry["module"], **sizes)
        colocated = bool(job.get("colocated", False))
        split = job.get("placement") == "split"
        audio = modules.get("audio")
        return Layout(modules.get("vision"), modules.get("language"), colocated, split, audio)

    @property
    def apart(self) -> bool:
        """Whether embeddings move by plans between modules on separate ranks."""
        return self.split and not self.colocated

    def peers(self, consumer: str, encoder: Optional[Module]) -> Tuple[int, int]:
        """Ranks of the encoder that feed one language rank, and language ranks that one of
        them feeds; one of the two is 1.

        Raises FailedPrecondition if neither dp divides the other, or if a process with both
        modules has another dp for each.
        """
        if encoder is None or self.language is None:
            return 1, 1
        name, own, language = encoder.name, encoder.dp, self.language.dp
        if language % own != 0 and own % language != 0:
            raise FailedPrecondition(
                "topology.modules.%s.dp: found %d with language.dp %d; %s sends media "
                "between whole ranks: choose a %s.dp that divides language.dp, or that "
                "language.dp divides" % (name, own, language, consumer, name)
            )
        if self.colocated and own != language:
            raise FailedPrecondition(
                "topology.modules: found %s.dp %d and language.dp %d with colocated: "
                "true; %s cuts a process's media into equal parts: give both modules "
                "the same dp, or separate processes" % (name, own, language, consumer)
            )
        return max(1, own // language), max(1, language // own)
