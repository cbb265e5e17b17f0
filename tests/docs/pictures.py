#!/usr/bin/env python3
"""Takes the pictures of docs/ anew, by headless Chromium: the page of a server with four ranks,
the preview of a sample and the gallery of a source, over drawn receipts and documents.

    tests/docs/pictures.py --programs DIR   # a folder with bin/ballast-server and so on
    tests/docs/pictures.py --check          # fails if a page has changed since

Look at what it made before you commit it. docs/pictures.json has a hash of the pages that the
pictures show.
"""

import argparse
import contextlib
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NOTE = os.path.join(ROOT, "docs/pictures.json")
# Picture to the folder of its page, the width and the height.
PICTURES = {
    "page": ("server/serve/http", 1000, 1018),
    "preview": ("server/command/preview", 1180, 1010),
    "gallery": ("server/command/preview", 1000, 780),
}
CONFIG = """
sources: [{name: docs, format: webdataset, path: "docs-*.tar"}]
model: {profile: qwen2_5_vl, max_pixels: 1003520}
batch: {global: 64, micro: 32, max_tokens: 16384}
topology: {modules: {vision: {dp: 4}, language: {dp: 4}}}
serve: {listen: ["127.0.0.1:0"], http: "127.0.0.1:0", memory: 1GiB}
"""


def hashes():
    """A hash of what the browser gets, for each picture."""
    found = {}
    for name, (folder, _, _) in PICTURES.items():
        pages = sorted(
            path
            for kind in ("css", "html", "js")
            for path in glob.glob(os.path.join(ROOT, folder, "*." + kind))
        )
        whole = hashlib.sha256()
        for path in pages:
            with open(path, "rb") as file:
                whole.update(file.read())
        found[name] = whole.hexdigest()
    return found


def check():
    with open(NOTE, encoding="utf-8") as file:
        noted = json.load(file)
    stale = [name for name, now in hashes().items() if noted.get(name) != now]
    for name in stale:
        print(
            f"docs/{name}.png is older than its page in {PICTURES[name][0]}: take it anew by "
            "tests/docs/pictures.py --programs DIR, and look at it",
            file=sys.stderr,
        )
    return 1 if stale else 0


def shoot(name, url, folder):
    _, width, height = PICTURES[name]
    path = os.path.join(folder, name + ".png")
    subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--user-data-dir=" + os.path.join(folder, "chromium"), "--virtual-time-budget=15000",
         f"--window-size={width},{height}", "--screenshot=" + path, url],
        check=True, timeout=300, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        from PIL import Image
    except ImportError:
        pass  # a larger file
    else:
        with Image.open(path) as picture:
            small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        small.save(path, optimize=True)
    shutil.move(path, os.path.join(ROOT, "docs", name + ".png"))


@contextlib.contextmanager
def running(*command):
    """What the program says, line by line; it ends with the block."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as p:
        try:
            yield p.stdout
        finally:
            p.terminate()


def found(lines, pattern):
    for line in lines:
        match = re.search(pattern, line)
        if match:
            return match[1]
    raise SystemExit(f"pictures.py: a program ended without saying {pattern}")


def take(programs):
    server = os.path.join(programs, "bin/ballast-server")
    rank = os.path.join(programs, "bin/ballast-rank")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([server, "make-corpus", "--out", folder, "--samples", "256"], check=True)
        config = os.path.join(folder, "job.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG)
        subprocess.run([server, "index", "--config", config], check=True)
        with running(server, "serve", "--config", config) as said:
            page = found(said, r" page at (\S+),")
            address = found(said, r"^ready (\S+)")
            line = [rank, "--server", address, "--backend", "host", "--world", "all"]
            subprocess.run([*line, "--steps", "24"], check=True, stdout=subprocess.DEVNULL)
            with running(*line, "--step", "24", "--steps", "100000"):
                shoot("page", page, folder)
        with running(server, "preview", "--config", config) as said:
            address = found(said, r"(http://127[^/]+/)")
            shoot("preview", address + "#docs:3", folder)
            shoot("gallery", address + "#gallery/docs", folder)
    with open(NOTE, "w", encoding="utf-8") as file:
        json.dump(hashes(), file, indent=1)
        file.write("\n")
    return 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--programs", metavar="DIR")
    what.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    return check() if arguments.check else take(arguments.programs)


if __name__ == "__main__":
    sys.exit(main())
