"""Another project of PyPI, a load balancer, is named `ballast` and has a package of that name.

Ours is the distribution `ballast-loader`. Installed into one folder, the two overwrite each
other's files (docs/decisions/0134-a-name-that-is-free.md).
"""

from __future__ import annotations

import os

# Of the other project, in every release of it.
_FILES = ("rule.py", "ping.py", "service.py")


def advice(folder: str) -> str:
    """What to do if the package in `folder` has files of the other project; else ""."""
    if not all(os.path.exists(os.path.join(folder, name)) for name in _FILES):
        return ""
    return (
        "%s: found files of PyPI's project `ballast`, a load balancer, in the package of "
        "`ballast-loader`; each overwrites the other: pip uninstall ballast ballast-loader, then "
        "install ballast-loader alone" % folder
    )
