"""Why a program or a library of the wheel cannot run on this machine."""

from __future__ import annotations

import os
import platform


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
    if "' not found" in message and ("GLIBC" in message or "CXXABI" in message):
        return (
            "this system has %s, or a C++ library older than the wheel's; wanted glibc 2.34 "
            "and GCC 11's libstdc++ or newer: RHEL 9, Ubuntu 22.04, Debian 12, or a container "
            "of one" % (c_library or "no glibc")
        )
    if "Exec format error" in message or "wrong ELF class" in message or (
        "ELF header" in message or "file too short" in message
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
    if "cannot open shared object file" in message:
        return (
            "a library that it needs is not where the wheel has it: install the wheel with "
            "pip, since it finds its libraries only in the wheel's own folders"
        )
    return ""


def explained(error: OSError) -> str:
    """The error, and what to do about it."""
    told = advice(str(error))
    return "%s; %s" % (error, told) if told else str(error)
