#!/usr/bin/env python3
"""Writes the wheel of package `ballast`. Python's standard library only.

    wheel.py --out ballast-1.2.3-py3-none-linux_x86_64.whl \\
        --library libballast_shim.so --root trainer_shim/python FILE...

FILEs lie below --root and keep their relative paths. The library goes to ballast/lib,
together with the shared libraries that it needs and that not every system has. Those
are renamed (libssl.so.3 becomes balssl.so.3), in the files and in all references, so
that another OpenSSL or zlib in the same process stays separate. They go where the
library's RPATH looks: $ORIGIN, or a folder below it.

Equal inputs give equal bytes.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import struct
import sys
import zipfile
from typing import Dict, List

# Libraries that every machine with Python has (manylinux's list), or that a process
# must share.
SYSTEM = re.compile(
    r"(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s)|libcuda|"
    r"libcudart|libnccl)\.so[^/]*"
)
FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
NEEDED, STRTAB, STRSZ, SONAME, RPATH = 1, 5, 10, 14, 15


class Elf:
    """The dynamic section of a 64-bit little-endian shared library."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self.data = bytearray(file.read())
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("%s is not a 64-bit little-endian ELF file" % path)
        (offset,) = struct.unpack_from("<Q", self.data, 32)
        size, count = struct.unpack_from("<HH", self.data, 54)
        headers = [
            struct.unpack_from("<IIQQQQQQ", self.data, offset + i * size) for i in range(count)
        ]
        loads = [(h[3], h[2], h[5]) for h in headers if h[0] == 1]  # address, offset, size
        dynamic = next(h for h in headers if h[0] == 2)
        self.entries = []
        for at in range(dynamic[2], dynamic[2] + dynamic[5], 16):
            tag, value = struct.unpack_from("<qQ", self.data, at)
            if tag == 0:
                break
            self.entries.append((tag, value))
        table = dict(self.entries)
        self._strings = next(
            table[STRTAB] - address + place
            for address, place, length in loads
            if address <= table[STRTAB] < address + length
        )
        self._size = table[STRSZ]

    def _text(self, offset: int) -> str:
        begin = self._strings + offset
        return self.data[begin : self.data.index(0, begin)].decode()

    def texts(self, *tags: int) -> List[str]:
        """The strings of all entries with one of the tags."""
        return [self._text(value) for tag, value in self.entries if tag in tags]

    def rename(self, old: str, new: str) -> None:
        """Replaces every string of the table that equals `old`. Symbol versions
        refer to files by name, too."""
        assert len(old) == len(new)
        end = self._strings + self._size
        at = self._strings
        old_bytes = b"\0" + old.encode() + b"\0"
        while (at := self.data.find(old_bytes, at, end)) >= 0:
            self.data[at + 1 : at + 1 + len(old)] = new.encode()
            at += len(old)


def find(name: str) -> str:
    """Path of a shared library of the system."""
    for folder in FOLDERS:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    raise SystemExit(
        "wheel.py: %s is needed and not in %s; install the package that contains it"
        % (name, ", ".join(FOLDERS))
    )


def bundle(library: str) -> Dict[str, bytes]:
    """A library and all libraries that it needs, by name in the wheel."""
    files: Dict[str, Elf] = {}
    waiting = [("libballast_shim.so", library)]
    while waiting:
        name, path = waiting.pop()
        elf = files[name] = Elf(path)
        for needed in elf.texts(NEEDED):
            if needed not in files and not SYSTEM.fullmatch(needed):
                if needed not in dict(waiting):
                    waiting.append((needed, find(needed)))
    # RPATH, unlike RUNPATH, also applies to the libraries that those libraries need.
    paths = ":".join(files["libballast_shim.so"].texts(RPATH)).split(":")
    folder = next((path[len("$ORIGIN") :] for path in paths if path.startswith("$ORIGIN")), None)
    if folder is None:
        raise SystemExit(
            "wheel.py: %s: found RPATH %s; wanted one with $ORIGIN" % (library, paths)
        )
    folder = folder.strip("/") + "/" if folder else ""
    renamed = {name: "bal" + name[3:] for name in files if name != "libballast_shim.so"}
    for elf in files.values():
        for old, new in renamed.items():
            elf.rename(old, new)
    for name, elf in files.items():
        left = set(elf.texts(NEEDED, SONAME)) & set(renamed)
        if left:
            raise SystemExit("wheel.py: %s still refers to %s" % (name, sorted(left)))
    return {
        folder + renamed[name] if name in renamed else name: bytes(elf.data)
        for name, elf in files.items()
    }


METADATA = """\
Metadata-Version: 2.1
Name: ballast
Version: {version}
Summary: Packed, balanced batches for training vision-language models
License: Apache-2.0
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Provides-Extra: torch
Requires-Dist: torch>=2.1; extra == "torch"
Classifier: Operating System :: POSIX :: Linux
Classifier: Typing :: Typed
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: ballast
Root-Is-Purelib: false
Tag: {tag}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    named = re.fullmatch(r"([^-]+)-([^-]+)-(.+)\.whl", os.path.basename(arguments.out))
    if named is None:
        parser.error("--out: found %r; wanted NAME-VERSION-TAG.whl" % arguments.out)
    name, version, tag = named.groups()

    contents = {}
    for path in arguments.files:
        with open(path, "rb") as file:
            contents[os.path.relpath(path, arguments.root)] = file.read()
    for library, data in bundle(arguments.library).items():
        contents["ballast/lib/" + library] = data
    info = "%s-%s.dist-info/" % (name, version)
    contents[info + "METADATA"] = METADATA.format(version=version).encode()
    contents[info + "WHEEL"] = WHEEL.format(tag=tag).encode()
    record = []
    for path, data in sorted(contents.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append("%s,sha256=%s,%d\n" % (path, digest, len(data)))
    record.append(info + "RECORD,,\n")
    contents[info + "RECORD"] = "".join(record).encode()

    with zipfile.ZipFile(arguments.out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as wheel:
        # The format recommends dist-info last.
        for path in sorted(contents, key=lambda path: (path.startswith(info), path)):
            entry = zipfile.ZipInfo(path)  # dated 1980, always
            entry.compress_type = zipfile.ZIP_DEFLATED
            executable = ".so" in os.path.basename(path)
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            wheel.writestr(entry, contents[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
