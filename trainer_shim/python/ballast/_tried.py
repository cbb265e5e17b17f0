"""The trainers with which the adapters of this version were tried."""

from __future__ import annotations

import importlib.metadata
import sys
import warnings
from typing import Dict, List

#: Distribution -> version, as deploy/trainers.txt installs them for the tests.
TRIED: Dict[str, str] = {
    "accelerate": "1.15.0",
    "lightning": "2.6.6",
    "megatron-bridge": "0.6.2",
    "megatron-core": "0.19.2",
    "torch": "2.15.0",
    "transformers": "5.23.0",
    "trl": "1.16.0",
}


def _release(version: str) -> List[str]:
    """A version's first two numbers."""
    return version.split("+")[0].split(".")[:2]


def warn_of_others() -> None:
    """Warns of each trainer that this process has imported in another release than was
    tried. A patch release is none."""
    found = []
    for name, tried in TRIED.items():
        if name.replace("-", ".") not in sys.modules:
            continue
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # a source tree, of no release
        if _release(version) != _release(tried):
            found.append("%s: found %s, tried with %s" % (name, version, tried))
    if found:
        warnings.warn(
            "other releases than this version of Ballast was tried with: %s. Losses and batches "
            'may differ without an error: pip install "ballast-loader[tried]" installs those '
            "(docs/pytorch.md, Versions)" % "; ".join(found),
            stacklevel=3,
        )
