#!/usr/bin/env python3
"""Writes the wheel of package `ballast`. Python's standard library only.

    wheel.py --out ballast_loader-1.2.3-py3-none-linux_x86_64.whl \\
        --library libballast_shim.so --program ballast-server --program ballastctl \\
        --readme README.md --models MODEL... --root trainer_shim/python FILE...
    wheel.py --out ballast_loader-1.2.3-py3-none-manylinux_2_34_x86_64.whl --wheel WHEEL \\
        [--licences DIR] [--tree DIR] [--url URL]

FILEs are below --root and keep their relative paths; those of examples go below ballast. The library goes to ballast/lib,
the programs to ballast/bin, both without their symbols; each program gets a console
script of its name, and all of them `ballast`. The page --readme becomes the description.
The models' files go to ballast/models. The wheel uses the libraries of the machine that it
was built on: deploy/wheel.sh makes one for other machines of it.

With --wheel it copies that wheel, adds the files of --licences as licences, and puts the
files of --tree at their relative paths, replacing files that are there. --url is the
address of the sources.

Equal inputs give equal bytes.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import runpy
import subprocess
import sys
import tempfile
import zipfile

METADATA = """\
Metadata-Version: 2.4
Name: ballast-loader
Version: {version}
Summary: Packed, balanced batches for training vision-language models
Description-Content-Type: text/markdown
Author: The Ballast authors
License-Expression: Apache-2.0
Keywords: data-loader,vision-language,multimodal,training,pytorch,megatron,sequence-packing
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Provides-Extra: torch
Requires-Dist: torch>=2.1; extra == "torch"
{tried}Classifier: Development Status :: 5 - Production/Stable
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Intended Audience :: Developers
Classifier: Intended Audience :: Science/Research
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Python :: 3 :: Only
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed

{description}"""
WHEEL = """\
Wheel-Version: 1.0
Generator: ballast
Root-Is-Purelib: false
Tag: {tag}
"""


def tried(root: str) -> str:
    """Metadata of the extra `tried`: the trainers with which the adapters were tried."""
    versions = runpy.run_path(os.path.join(root, "ballast", "_tried.py"))["TRIED"]
    lines = ["Provides-Extra: tried"]
    lines += ['Requires-Dist: %s==%s; extra == "tried"' % each for each in versions.items()]
    return "\n".join(lines) + "\n"


def description(readme: str) -> str:
    """The page without its pictures, comments and links to files, which a wheel lacks."""
    with open(readme, encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"^!\[.*?\]\(.*?\)\n|^<!--.*?-->\n", "", text, flags=re.M | re.S)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


def stripped(path: str) -> bytes:
    """The bytes of a program or library without its symbols."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "stripped")
        subprocess.run(["strip", "--strip-unneeded", "-o", out, path], check=True)
        with open(out, "rb") as file:
            return file.read()


def write(out: str, info: str, contents: dict[str, bytes], executables: set[str]) -> None:
    """Writes the wheel with its RECORD; `info` is its folder .dist-info/."""
    record = []
    for path, data in sorted(contents.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append("%s,sha256=%s,%d\n" % (path, digest, len(data)))
    record.append(info + "RECORD,,\n")
    contents[info + "RECORD"] = "".join(record).encode()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as wheel:
        # The format recommends dist-info last.
        for path in sorted(contents, key=lambda path: (path.startswith(info), path)):
            entry = zipfile.ZipInfo(path)  # dated 1980, always
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if path in executables else 0o100644) << 16
            wheel.writestr(entry, contents[path])


def add_files(
    out: str, wheel_path: str, info: str, licences: str | None, tree: str | None, url: str | None
) -> None:
    """Copies a wheel with the files of `tree` and, listed as licences, of `licences`."""
    contents, executables = {}, set()
    with zipfile.ZipFile(wheel_path) as wheel:
        for entry in wheel.infolist():
            if entry.is_dir() or entry.filename == info + "RECORD":
                continue
            contents[entry.filename] = wheel.read(entry)
            if (entry.external_attr >> 16) & 0o100:
                executables.add(entry.filename)
    for folder, _, names in os.walk(tree) if tree is not None else ():
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                contents[os.path.relpath(path, tree)] = file.read()
            if os.access(path, os.X_OK):
                executables.add(os.path.relpath(path, tree))
    fields = []
    for name in sorted(os.listdir(licences)) if licences is not None else ():
        with open(os.path.join(licences, name), "rb") as file:
            contents[info + "licenses/" + name] = file.read()
        fields.append("License-File: %s\n" % name)
    if url is not None:
        fields.append("Project-URL: Source, %s\n" % url)
    # The description follows the first empty line.
    head, empty, text = contents[info + "METADATA"].partition(b"\n\n")
    contents[info + "METADATA"] = head + b"\n" + "".join(fields).encode() + empty[1:] + text
    write(out, info, contents, executables)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--library")
    parser.add_argument("--program", action="append", default=[])
    parser.add_argument("--models", nargs="+", default=[])
    parser.add_argument("--root")
    parser.add_argument("--wheel")
    parser.add_argument("--licences")
    parser.add_argument("--readme")
    parser.add_argument("--url")
    parser.add_argument("--tree")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    named = re.fullmatch(r"([^-]+)-([^-]+)-(.+)\.whl", os.path.basename(arguments.out))
    if named is None:
        parser.error("--out: found %r; wanted NAME-VERSION-TAG.whl" % arguments.out)
    name, version, tag = named.groups()
    info = "%s-%s.dist-info/" % (name, version)
    if arguments.wheel is not None:
        add_files(
            arguments.out, arguments.wheel, info, arguments.licences, arguments.tree, arguments.url
        )
        return 0
    if None in (arguments.library, arguments.root, arguments.readme) or not arguments.files:
        parser.error("wanted --library, --root, --readme and FILE..., or --wheel")

    contents = {}
    places = {path: os.path.relpath(path, arguments.root) for path in arguments.files}
    # Beside the package, "examples" would be anybody's name.
    places = {
        p: ("ballast/" if at.startswith("examples/") else "") + at for p, at in places.items()
    }
    places.update((path, "ballast/models/" + os.path.basename(path)) for path in arguments.models)
    for path, place in places.items():
        with open(path, "rb") as file:
            contents[place] = file.read()
    contents["ballast/lib/libballast_shim.so"] = stripped(arguments.library)
    scripts = ["[console_scripts]"]
    if arguments.program:
        scripts.append("ballast = ballast.__main__:main")
    for path in arguments.program:
        program = os.path.basename(path)
        contents["ballast/bin/" + program] = stripped(path)
        scripts.append("%s = ballast._programs:%s" % (program, program.replace("-", "_")))
    metadata = METADATA.format(
        version=version, tried=tried(arguments.root), description=description(arguments.readme)
    )
    contents[info + "METADATA"] = metadata.encode()
    contents[info + "WHEEL"] = WHEEL.format(tag=tag).encode()
    contents[info + "entry_points.txt"] = ("\n".join(scripts) + "\n").encode()
    programs = {path for path in contents if path.startswith(("ballast/bin/", "ballast/lib/"))}
    write(arguments.out, info, contents, programs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
