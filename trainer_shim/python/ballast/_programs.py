"""The wheel's programs: their places, and their console scripts."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Dict, List, NoReturn, Optional

from . import _machine, _other
from .errors import BallastError, FailedPrecondition, NotFound

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")


def path_of(name: str) -> str:
    """Path of a program of this installation, such as "ballast-server".

    Raises NotFound, or FailedPrecondition if this machine cannot run it.
    """
    path = _find(name)
    why = _machine.refusal(path, _environment(name))
    if why:
        raise FailedPrecondition("%s: cannot be run: %s" % (path, why))
    return path


def _find(name: str) -> str:
    # The Debian package and the tarball bring the programs outside of the Python package.
    named = os.environ.get("BALLAST_PROGRAMS")
    if named:
        path = os.path.join(named, name)
        if os.access(path, os.X_OK):
            return path
        raise NotFound(
            "BALLAST_PROGRAMS: found no program %s; point it at the folder that holds "
            "Ballast's programs, or unset it" % path
        )
    path = os.path.join(_FOLDER, name)
    if os.access(path, os.X_OK):
        return path
    # Not the console script of a wheel that lacks the program: it would call itself.
    found = None if os.path.isdir(_FOLDER) else shutil.which(name)
    if found is None:
        raise NotFound(
            "%s: found neither %s nor a program of that name in PATH; install Ballast's "
            "wheel, which brings it, or set BALLAST_PROGRAMS to the folder that holds it"
            % (name, path)
        )
    return found


def _nvidia_folders() -> List[str]:
    """Folders of the libraries in pip's nvidia packages."""
    folders = []
    for place in sys.path:
        root = os.path.join(place, "nvidia")
        if os.path.isdir(root):
            folders += [os.path.join(root, name, "lib") for name in sorted(os.listdir(root))]
    return [folder for folder in folders if os.path.isdir(folder)]


def _environment(name: str) -> Dict[str, str]:
    environment = dict(os.environ)
    if name == "ballast-rank":
        # A build with CUDA needs its runtime and NCCL, which the wheel leaves to pip's
        # packages or the system.
        places = [environment.get("LD_LIBRARY_PATH", ""), *_nvidia_folders()]
        text = ":".join(place for place in places if place)
        if text:
            environment["LD_LIBRARY_PATH"] = text
    return environment


def become(name: str, arguments: Optional[List[str]] = None) -> NoReturn:
    """Replaces this process by the program, with `arguments` or this process's."""
    try:
        # Another project's __init__.py may have taken the place of ours.
        if not hasattr(sys.modules["ballast"], "Loader"):
            raise FailedPrecondition(_other.advice(os.path.dirname(_FOLDER)))
        path = path_of(name)
    except BallastError as error:
        sys.exit(str(error))
    given = sys.argv[1:] if arguments is None else arguments
    os.execve(path, [name, *given], _environment(name))


def ballast_server() -> NoReturn:
    """The console script `ballast-server`."""
    become("ballast-server")


def ballastctl() -> NoReturn:
    """The console script `ballastctl`."""
    become("ballastctl")


def ballast_rank() -> NoReturn:
    """The console script `ballast-rank`."""
    become("ballast-rank")
