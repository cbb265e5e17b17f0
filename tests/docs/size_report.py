#!/usr/bin/env python3
"""Prints how large the house is: files, lines, programs.

    tests/docs/size_report.py [--json | --circles]

`--circles` prints what an include may not do: units that include each other, folders that
do, and includes that go up the floors of docs/architecture.md, "Layers". It exits with 1
if there are any.

Counts what git tracks. Product: all languages and BUILD files outside tests/ and
docs/; tests: tests/ with its data, and without. A unit of C++ is a header, its source,
or both. A report, not a limit: spec sheets and reviews quote it.
"""

import argparse
import collections
import json
import os
import re
import statistics
import subprocess

PROGRAM = re.compile(
    r"^(cc_test|sh_test|python_test|ballast_fuzz|ballast_benchmark|cuda_test)\(", re.MULTILINE
)
CODE = {
    ".bazel", ".bzl", ".c", ".cc", ".cu", ".cuh", ".h", ".html", ".css", ".js", ".proto",
    ".py", ".sh", ".textproto", ".yaml", ".yml", ".inc",
}  # fmt: skip


def lines_of(path):
    with open(path, "rb") as file:
        return file.read().count(b"\n")


def names_all_media(path):
    """Whether a file has the words images, videos and clips: it treats them side by side."""
    with open(path, encoding="utf-8") as file:
        words = set(re.findall(r"\w+", file.read()))
    return {"images", "videos", "clips"} <= words


def measure():
    paths = subprocess.check_output(["git", "ls-files"], text=True).splitlines()
    paths = [path for path in paths if os.path.isfile(path)]
    lines = {path: lines_of(path) for path in paths}
    product = [p for p in paths if not p.startswith(("tests/", "docs/"))]
    tests = [p for p in paths if p.startswith("tests/")]
    test_code = [p for p in tests if os.path.splitext(p)[1] in CODE]
    cpp = [p for p in product if p.endswith((".cc", ".h", ".cu", ".cuh"))]
    units = {os.path.splitext(p)[0] for p in cpp}
    programs = sum(
        len(PROGRAM.findall(open(p, encoding="utf-8").read()))
        for p in tests
        if p.endswith("BUILD.bazel")
    )
    folders = collections.Counter()
    for p in product:
        folders["/".join(p.split("/")[:2]) if "/" in p else "."] += lines[p]
    sizes = sorted(lines[p] for p in cpp)
    media = [p for p in product if os.path.splitext(p)[1] in CODE and names_all_media(p)]
    return {
        "product files": len(product),
        "product lines": sum(lines[p] for p in product),
        "C++ files": len(cpp),
        "C++ units": len(units),
        "files that name three media": len(media),
        "lines of these": sum(lines[p] for p in media),
        "C++ files under 40 lines": sum(size < 40 for size in sizes),
        "C++ median lines": int(statistics.median(sizes)),
        "C++ lines, 90th percentile": sizes[len(sizes) * 9 // 10],
        "test files": len(tests),
        "test lines, code and BUILD files": sum(lines[p] for p in test_code),
        "test lines with data": sum(lines[p] for p in tests),
        "test BUILD lines": sum(lines[p] for p in tests if p.endswith("BUILD.bazel")),
        "test programs": programs,
        "documentation lines": sum(lines[p] for p in paths if p.startswith("docs/")),
        "product lines by folder": dict(sorted(folders.items(), key=lambda i: -i[1])),
    }


def includes():
    """Pairs (file, included file) of C++ outside of tests/, both tracked."""
    paths = subprocess.check_output(["git", "ls-files", "*.h", "*.cc", "*.cu"], text=True).split()
    files = {p for p in paths if not p.startswith("tests/") and os.path.isfile(p)}
    for path in sorted(files):
        for found in re.findall(r'^#include "([^"]+)"', open(path, encoding="utf-8").read(), re.M):
            if found in files:
                yield path, found


def folder_of(path):
    """The folder that is a room of the house: `common`, `server/data` with all below it."""
    parts = os.path.dirname(path).split("/")
    return "/".join(parts[:2] if parts[0] == "server" else parts[:1])


def floors():
    """The floor of each folder, from 0 at the top: the drawing in docs/architecture.md."""
    with open("docs/architecture.md", encoding="utf-8") as page:
        drawing = page.read().split("## Layers")[1].split("```")[1]
    rows = drawing.splitlines()[1:]
    return {folder: floor for floor, row in enumerate(rows) for folder in row.split("#")[0].split()}


def circles(room):
    """Groups of what `room` makes of files, outside of tests/, that include each other."""
    uses = collections.defaultdict(set)
    for path, found in includes():
        uses[room(path)].add(room(found))
        uses[room(found)].update(())
    reach = {}
    for unit in uses:
        reach[unit], open_ends = set(), [unit]
        while open_ends:
            fresh = uses[open_ends.pop()] - reach[unit]
            reach[unit] |= fresh
            open_ends.extend(fresh)
    groups = {
        tuple(sorted(v for v in reach[unit] if v == unit or unit in reach[v]))
        for unit in uses
        if any(v != unit and unit in reach[v] for v in reach[unit])
    }
    return sorted(groups)


def faults_of_layers():
    """A line each for what no include may do."""
    lines = [
        "units in a circle: " + "  ".join(g) for g in circles(lambda p: os.path.splitext(p)[0])
    ]
    lines += ["folders in a circle: " + "  ".join(group) for group in circles(folder_of)]
    floor = floors()
    for path, found in includes():
        user, used = folder_of(path), folder_of(found)
        unknown = {user, used} - floor.keys()
        lines += ["%s: not in docs/architecture.md, Layers" % folder for folder in unknown]
        if user != used and not unknown and floor[user] >= floor[used]:
            lines.append("%s includes %s, which is not below it" % (path, found))
    return sorted(set(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one object, with folders")
    parser.add_argument("--circles", action="store_true", help="includes that the house forbids")
    options = parser.parse_args()
    if options.circles:
        lines = faults_of_layers()
        print("\n".join(lines), end="\n" if lines else "")
        raise SystemExit(1 if lines else 0)
    report = measure()
    if options.json:
        print(json.dumps(report, indent=1))
        return
    for name, value in report.items():
        if isinstance(value, int):
            print("%-34s %8d" % (name, value))


if __name__ == "__main__":
    main()
