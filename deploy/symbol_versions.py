#!/usr/bin/env python3
"""Compares what programs want of a machine's libraries with what distributions have.

    deploy/symbol_versions.py FILE...           a table; status 1 if one lacks a version
    deploy/symbol_versions.py --lower FILE...   changes the files

FILE is an ELF file, a folder or a wheel. A program that needs a symbol version that the
machine's glibc, libstdc++, libgcc or zlib lacks does not start there. The table counts the
helpers, which the server holds as bytes, too.

--lower binds std::condition_variable::wait, the one symbol by which what GCC 12 compiles
needs more than the libstdc++ of RHEL 9, to its older version, which every libstdc++ has.

Python's standard library only: the ELF format is read here.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import struct
import sys
import zipfile
from typing import Dict, Iterator, List, NamedTuple, Tuple

# The newest versions that the libraries of a distribution define, as its packages do.
_KINDS = ("GLIBC", "GLIBCXX", "CXXABI", "GCC", "ZLIB")
DISTRIBUTIONS = {
    "RHEL 9": ("2.34", "3.4.29", "1.3.13", "7.0.0", "1.2.9"),
    "Ubuntu 22.04": ("2.35", "3.4.30", "1.3.13", "12.0.0", "1.2.9"),
    "Debian 12": ("2.36", "3.4.30", "1.3.13", "12.0.0", "1.2.12"),
    "Ubuntu 24.04": ("2.39", "3.4.33", "1.3.15", "14.0.0", "1.2.12"),
    "Debian 13": ("2.41", "3.4.33", "1.3.15", "14.0.0", "1.2.12"),
}
# Libraries that no package of ours brings.
_OF_THE_MACHINE = re.compile(
    r"(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s|z))\.so\.[0-9]+"
)
_NEW, _OLD = b"GLIBCXX_3.4.30", b"GLIBCXX_3.4.11"
_LOWERED = b"_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"


class Need(NamedTuple):
    """A version that a file needs of a library; `at` is the entry's place."""

    library: str
    version: str
    index: int
    at: int
    name_at: int


class Elf:
    """The dynamic symbols of a little-endian ELF64 file and their versions."""

    def __init__(self, data: bytes):
        self.data = data
        (table,) = struct.unpack_from("<Q", data, 0x28)
        size, count = struct.unpack_from("<HH", data, 0x3A)
        self._sections = [
            struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)
        ]

    def _of_type(self, kind: int) -> Iterator[Tuple[int, int, int]]:
        """Place, size and the place of the strings of the sections of a type."""
        for section in self._sections:
            if section[1] == kind:
                yield section[4], section[5], self._sections[section[6]][4]

    def _text(self, at: int) -> bytes:
        return self.data[at : self.data.index(b"\0", at)]

    def needs(self) -> List[Need]:
        found = []
        for at, _, strings in self._of_type(0x6FFFFFFE):  # SHT_GNU_verneed
            step = 1
            while step:
                _, count, file, aux, step = struct.unpack_from("<HHIII", self.data, at)
                library = self._text(strings + file).decode()
                entry = at + aux
                for _ in range(count):
                    _, _, index, name, following = struct.unpack_from("<IHHII", self.data, entry)
                    version = self._text(strings + name).decode()
                    found.append(Need(library, version, index & 0x7FFF, entry, strings + name))
                    entry += following
                at += step
        return found

    def symbols_of(self, index: int) -> List[bytes]:
        """The symbols that are bound to a needed version."""
        ((versions, size, _),) = self._of_type(0x6FFFFFFF)  # SHT_GNU_versym
        ((symbols, _, strings),) = self._of_type(11)  # SHT_DYNSYM
        found = []
        for i in range(size // 2):
            (version,) = struct.unpack_from("<H", self.data, versions + 2 * i)
            if version & 0x7FFF == index:
                (name,) = struct.unpack_from("<I", self.data, symbols + 24 * i)
                found.append(self._text(strings + name))
        return found


def is_elf(data: bytes) -> bool:
    return data[:6] == b"\x7fELF\x02\x01"


def held(name: str, data: bytes) -> Iterator[Tuple[str, bytes]]:
    """The ELF file and those that it holds as bytes (bazel/embedded_program.bzl)."""
    yield name, data
    at = data.find(data[:7], 1)
    while at > 0:
        # A program's head: type 2 or 3, its machine, and a table of sections that ends
        # within the file.
        kind, machine = struct.unpack_from("<HH", data, at + 16)
        (table,) = struct.unpack_from("<Q", data, at + 0x28)
        size, count = struct.unpack_from("<HH", data, at + 0x3A)
        if (
            kind in (2, 3)
            and machine == struct.unpack_from("<H", data, 18)[0]
            and size == 64
            and 0 < count
            and at + table + size * count <= len(data)
        ):
            yield "%s, in it at %d" % (name, at), data[at:]
        at = data.find(data[:7], at + 1)


def elves(path: pathlib.Path) -> Iterator[Tuple[str, bytes]]:
    """The names and bytes of the ELF files that `path` is or holds."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                with wheel.open(name) as file:
                    head = file.read(6)
                    if is_elf(head):
                        yield name, head + file.read()
        return
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in files:
        if file.is_symlink() or not file.is_file():
            continue
        data = file.read_bytes()
        if is_elf(data):
            yield str(file), data


def number(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def elf_hash(name: bytes) -> int:
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def lowered(data: bytes, name: str) -> bytes:
    """The file with wait() bound to its older version."""
    elf = Elf(data)
    changed = bytearray(data)
    for need in elf.needs():
        if need.version.encode() != _NEW:
            continue
        others = [s.decode() for s in elf.symbols_of(need.index) if s != _LOWERED]
        if others:
            raise SystemExit(
                "symbol_versions.py: %s: needs %s of %s, which has no older version; "
                "compile it without" % (name, ", ".join(others), need.version)
            )
        changed[need.name_at : need.name_at + len(_OLD)] = _OLD
        struct.pack_into("<I", changed, need.at, elf_hash(_OLD))
    return bytes(changed)


def wanted(paths: List[pathlib.Path]) -> Dict[str, Tuple[Tuple[int, ...], str]]:
    """For each kind the newest version needed of the machine's libraries, and by which
    file."""
    newest = {kind: ((0,), "") for kind in _KINDS}
    count = 0
    files = (each for path in paths for file in elves(path) for each in held(*file))
    for name, data in files:
        count += 1
        for need in Elf(data).needs():
            kind, _, version = need.version.partition("_")
            if not _OF_THE_MACHINE.fullmatch(need.library):
                continue
            if version == "PRIVATE":
                raise SystemExit(
                    "symbol_versions.py: %s needs %s of %s; only one build "
                    "of it has that" % (name, need.version, need.library)
                )
            if kind in newest and re.fullmatch("[0-9.]+", version):
                newest[kind] = max(newest[kind], (number(version), name))
    if count == 0:
        raise SystemExit("symbol_versions.py: no ELF file found")
    return newest


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lower", action="store_true")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    if options.lower:
        for path in options.files:
            for name, data in elves(path):
                changed = lowered(data, name)
                if changed != data:
                    pathlib.Path(name).write_bytes(changed)
        return 0
    newest = wanted(options.files)
    for kind, (version, name) in newest.items():
        print("needs %s_%s: %s" % (kind, ".".join(map(str, version)), name or "nothing"))
    lacking = 0
    for distribution, versions in DISTRIBUTIONS.items():
        too_old = [
            "%s ends at %s" % (kind, has)
            for kind, has in zip(_KINDS, versions)
            if newest[kind][0] > number(has)
        ]
        lacking += bool(too_old)
        print("%s: %s" % (distribution, ", ".join(too_old) or "has all"))
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
