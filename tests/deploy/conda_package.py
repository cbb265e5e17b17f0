#!/usr/bin/env python3
"""Builds deploy/conda/recipe.yaml out of a wheel. By hand, since the builder is no package of Debian:

    pip install py-rattler-build
    deploy/wheel.sh
    tests/deploy/conda_package.py dist/ballast_loader-*.whl

rattler-build solves the recipe's requirements, installs the package in another folder than it
was built in, and runs the recipe's tests there: all programs, and an index of a drawn corpus.
A channel written here stands in for conda-forge: its packages of python and pip are this
machine's interpreter and its pip. So it shows that the recipe builds, and that what it builds works
where it is installed; not how it gets along with conda-forge's packages.
"""

import argparse
import glob
import hashlib
import importlib.util
import json
import os
import sys
import tarfile
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VERSION = "%d.%d" % sys.version_info[:2]


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def add_package(folder, name, version, depends, files, **index):
    """Writes a package of the files {path in the prefix: path here}; answers its record."""
    record = {
        "name": name, "version": version, "build": "standin_0", "build_number": 0,
        "depends": depends, "subdir": "linux-64", **index,
    }  # fmt: skip
    paths = [
        {
            "_path": inside,
            "path_type": "hardlink",
            "sha256": sha256(here),
            "size_in_bytes": os.path.getsize(here),
        }
        for inside, here in sorted(files.items())
    ]
    with tempfile.TemporaryDirectory() as work:
        write(work + "/info/index.json", json.dumps(record))
        write(work + "/info/paths.json", json.dumps({"paths": paths, "paths_version": 1}))
        write(work + "/info/files", "".join(inside + "\n" for inside in sorted(files)))
        out = os.path.join(folder, "%s-%s-standin_0.tar.bz2" % (name, version))
        with tarfile.open(out, "w:bz2", compresslevel=1) as tar:
            tar.add(work + "/info", "info")
            for inside, here in files.items():
                tar.add(here, inside)
    with open(out, "rb") as file:
        content = file.read()
    record.update(
        md5=hashlib.md5(content).hexdigest(),
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
    )
    return os.path.basename(out), record


def write_channel(folder, work):
    """A channel with python and pip, as this machine has them."""
    platform = os.path.join(folder, "linux-64")
    os.makedirs(platform)
    # A virtual environment without links: an interpreter that looks for its
    # packages beside itself, and for its own modules where this one does.
    home = os.path.dirname(os.path.realpath(sys.executable))
    write(work + "/pyvenv.cfg", "home = %s\nversion = %s\n" % (home, VERSION))
    start = '#!/bin/sh\nexec -a "$0" %s "$@"\n' % os.path.realpath(sys.executable)
    write(work + "/python", start.replace("/bin/sh", "/bin/bash"), 0o755)
    write(work + "/keep", "")
    site = "lib/python%s/site-packages" % VERSION
    python = {"pyvenv.cfg": work + "/pyvenv.cfg", site + "/keep": work + "/keep"}
    for name in ("python", "python3", "python" + VERSION):
        python["bin/" + name] = work + "/python"
    pip_folder = os.path.dirname(importlib.util.find_spec("pip").origin)
    pip = {}
    for path in glob.glob(pip_folder + "/**", recursive=True):
        if os.path.isfile(path) and "__pycache__" not in path:
            pip[os.path.join(site, "pip", os.path.relpath(path, pip_folder))] = path
    full = "%d.%d.%d" % sys.version_info[:3]
    packages = dict(
        [
            add_package(platform, "python", full, [], python, python_site_packages_path=site),
            add_package(platform, "pip", "99.0", ["python"], pip),
        ]
    )
    for subdir, held in (("linux-64", packages), ("noarch", {})):
        write(
            os.path.join(folder, subdir, "repodata.json"),
            json.dumps({"info": {"subdir": subdir}, "packages": held, "packages.conda": {}}),
        )


def build(wheel, channel, out):
    """Builds the package, which runs the recipe's tests; answers its path."""
    from rattler_build.cli_api import build_recipes

    os.environ["BALLAST_WHEEL"] = os.path.abspath(wheel)
    build_recipes(
        [os.path.join(ROOT, "deploy/conda/recipe.yaml")],
        channel=["file://" + channel],
        output_dir=out,
        package_format="conda:1",
        no_include_recipe=True,
    )
    (package,) = glob.glob(out + "/linux-64/ballast-*.conda")
    return package


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("wheel", help="what deploy/wheel.sh has made")
    parser.add_argument("--out", help="where the package stays (default: nowhere)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        channel = os.path.join(work, "channel")
        write_channel(channel, os.path.join(work, "made"))
        package = build(arguments.wheel, channel, arguments.out or os.path.join(work, "out"))
        print("built and tested", os.path.basename(package))
    return 0


if __name__ == "__main__":
    sys.exit(main())
