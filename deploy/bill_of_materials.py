#!/usr/bin/env python3
"""Writes the bill of materials of a release as SPDX 2.3 (JSON) to standard output.

    deploy/bill_of_materials.py --version 1.0.0 --date SECONDS FILE...

FILE is a wheel, a tarball or a .deb. Each holds a list VERSIONS of what it brings,
one "NAME VERSION" a line, in the folder of the licences (deploy/licences.sh).
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import urllib.parse
import zipfile


def brought_by(path: pathlib.Path) -> list[tuple[str, str]]:
    """The names and versions of what the file brings."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            (name,) = [n for n in wheel.namelist() if n.endswith("/VERSIONS")]
            text = wheel.read(name).decode()
    elif path.suffix == ".deb":
        tar = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", path], check=True, capture_output=True
        ).stdout
        text = subprocess.run(
            ["tar", "--extract", "--to-stdout", "--wildcards", "*/licences/VERSIONS"],
            check=True, input=tar, capture_output=True,
        ).stdout.decode()  # fmt: skip
    else:
        with tarfile.open(path) as tar:
            (name,) = [n for n in tar.getnames() if n.endswith("/licences/VERSIONS")]
            text = tar.extractfile(name).read().decode()
    return [tuple(line.split(" ", 1)) for line in text.splitlines()]


def spdx_id(*parts: str) -> str:
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", "-".join(parts))


def package(name: str, version: str, **more) -> dict:
    return {
        "name": name,
        "SPDXID": spdx_id(name, version),
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        **more,
    }


def part(name: str, version: str) -> dict:
    """What a package brings, by the names that deploy/licences.sh gives."""
    if name == "ffmpeg":
        return package(
            name,
            version,
            downloadLocation=f"https://ffmpeg.org/releases/ffmpeg-{version}.tar.xz",
            licenseDeclared="LGPL-2.1-or-later",
            **purl(f"pkg:generic/ffmpeg@{version}"),
        )
    if name == "arrow":
        return package(name, version, **purl(f"pkg:pypi/pyarrow@{version}"))
    if name == "cuda":
        return package(name, version)
    quoted = urllib.parse.quote(name, safe=""), urllib.parse.quote(version, safe="")
    return package(name, version, **purl("pkg:deb/debian/%s@%s" % quoted))


def purl(locator: str) -> dict:
    """What scanners look up known faults by."""
    reference = {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": locator,
    }
    return {"externalRefs": [reference]}


def bill(version: str, date: int, files: list[pathlib.Path]) -> dict:
    packages: dict[str, dict] = {}
    relations = []
    for path in sorted(files):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        ours = package(
            path.name,
            version,
            licenseDeclared="Apache-2.0",
            checksums=[{"algorithm": "SHA256", "checksumValue": digest}],
        )
        packages[ours["SPDXID"]] = ours
        relations.append(("SPDXRef-DOCUMENT", "DESCRIBES", ours["SPDXID"]))
        for name, its_version in brought_by(path):
            brought = part(name, its_version)
            packages[brought["SPDXID"]] = brought
            relations.append((ours["SPDXID"], "CONTAINS", brought["SPDXID"]))
    created = datetime.datetime.fromtimestamp(date, datetime.timezone.utc)
    hashes = "".join(p["checksums"][0]["checksumValue"] for p in packages.values()
                     if "checksums" in p)  # fmt: skip
    namespace = hashlib.sha256(hashes.encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"ballast-{version}",
        "documentNamespace": f"https://ballast.invalid/spdx/{version}/{namespace}",
        "creationInfo": {
            "created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: deploy/bill_of_materials.py"],
        },
        "packages": list(packages.values()),
        "relationships": [
            {"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}
            for a, kind, b in relations
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", required=True)
    parser.add_argument("--date", type=int, required=True, help="seconds since 1970")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    json.dump(bill(options.version, options.date, options.files), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
