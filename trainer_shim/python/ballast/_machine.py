"""Why a program or a library of the wheel cannot run on this machine."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from typing import Mapping

_SYSTEMS = "RHEL 9, Ubuntu 22.04, Debian 12"


def _c_library() -> str:
    """The C library of this Python: "glibc 2.36"; "" if it is another."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def advice(message: str, machine: str = "", c_library: str | None = None) -> str:
    """What to do about an error of the loader or of execve(2), by its text.

    "" if the text says nothing about the machine. Tests name another machine.
    """
    machine = machine or platform.machine()
    if c_library is None:
        c_library = _c_library()
    if "`GLIBC_" in message and "' not found" in message:
        return "this system has %s; wanted glibc 2.34 or newer: %s, or a container of one" % (
            c_library or "no glibc", _SYSTEMS,
        )  # fmt: skip
    if re.search(r"`(GLIBCXX|CXXABI|GCC)_.*' not found", message):
        return (
            "that library is older than GCC 11's; wanted that or newer, as %s have it. If it is "
            "not the system's, take its folder out of LD_LIBRARY_PATH, or renew it (conda: "
            "libstdcxx-ng, libgcc-ng)" % _SYSTEMS
        )
    missing = re.search(r"([^\s:]+): cannot open shared object file", message)
    # The loader passes over a library of another processor as if it were not there.
    if re.search("Exec format error|wrong ELF class|ELF header|file too short", message) or (
        missing and os.path.isfile(missing[1])
    ):
        return (
            "it is made for another kind of processor than this machine's, %s, or is cut off: "
            "install the wheel of this machine with pip, not by unpacking another's" % machine
        )
    if not c_library:
        return (
            "this system's C library is not glibc (Alpine has musl), and the wheel needs it: "
            "take an image of Debian, Ubuntu or RHEL"
        )
    if missing and re.match(r"lib(stdc\+\+|gcc_s|z)\.so", missing[1]):
        return (
            "the wheel takes it from the system, which lacks it: install the package libstdc++6, "
            "libgcc-s1 or zlib1g (RHEL: libstdc++, libgcc, zlib)"
        )
    if missing and re.match(r"lib(cuda|cudart|nccl)\.so", missing[1]):
        return "it is NVIDIA's: install the driver, and PyTorch with CUDA, which brings the rest"
    if missing:
        return (
            "a library that it needs is not where the wheel has it, or is made for another kind "
            "of processor: install the wheel with pip, since it finds its libraries only in the "
            "wheel's own folders"
        )
    return ""


def explained(error: object) -> str:
    """The error, or a line of the loader, and what to do about it."""
    told = advice(str(error))
    return "%s; %s" % (error, told) if told else str(error)


def refusal(program: str, environment: Mapping[str, str]) -> str:
    """Why the dynamic linker cannot start the program here, and what to do; "" if it can.

    Asks the loader, which then starts nothing: execve(2) leaves nobody to explain.
    """
    try:
        told = subprocess.run(
            [program], env={**environment, "LD_TRACE_LOADED_OBJECTS": "1"}, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
    except OSError as error:
        return explained(error)
    for line in (told.stderr + told.stdout).replace(program + ": ", "").splitlines():
        line = re.sub("^\\s*(.*) => not found$", r"\1: cannot open shared object file", line)
        # Other lines are of LD_PRELOAD, or of versions that need not be there.
        if re.search("^\\S+: cannot open|error while loading|: version `", line):
            return explained(line)
    return ""
