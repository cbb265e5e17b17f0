"""Data sets as people have them, from `pip install` to a batch by README's first lines alone,
word by word and timed.

BALLAST_WHEEL names a wheel that deploy/wheel.sh made; without it the wheel of
//trainer_shim/python is used, which takes this machine's libraries. BARE_ROOT names a system
with python3-numpy and python3-venv and nothing of ours, in which the lines then run, by root:

    debootstrap --include=python3-numpy,python3-venv bookworm ROOT
    BALLAST_WHEEL=dist/ballast_loader-….whl BARE_ROOT=ROOT \\
        python3 -m unittest -v tests.deploy.five_sets_test
"""

import csv
import glob
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zipfile

from tests.harness import tools

MOST_SECONDS = 120
SAMPLES = 48

# A mount namespace of its own: nothing is left mounted.
IN_ROOT = """
mount -t proc proc "$1/proc"
mkdir -p "$1/dev/shm"
mount -t tmpfs tmpfs "$1/dev/shm"
exec chroot "$1" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root bash -euo pipefail -c "$2"
"""


def captions(rows):
    """(path of the picture, what a person wrote about it) of each drawn sample."""
    for row in rows:
        yield (
            row["image"][0],
            next(turn["value"] for turn in row["conversations"] if turn["from"] == "gpt"),
        )


class Sets:
    """Writes each data set into a folder, out of one drawn by make-corpus."""

    def __init__(self, server, folder):
        self.server, self.photos = server, folder + "/photos"
        self.draw(folder + "/drawn", "--preset", "receipts")
        self.rows = tools.unpack(folder + "/drawn", self.photos)

    def draw(self, out, *options):
        subprocess.run(
            [self.server, "make-corpus", "--out", out, "--samples", str(SAMPLES), *options],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        os.remove(out + "/ballast.yaml")

    def llava(self, data):
        """One list of all conversations and a folder of images."""
        shutil.copytree(self.photos, data + "/images")
        rows = [{"id": str(number), **row} for number, row in enumerate(self.rows)]
        for row in rows:
            if len(row["image"]) == 1:
                row["image"] = row["image"][0]
        with open(data + "/llava_instruct.json", "w", encoding="utf-8") as file:
            json.dump(rows, file)

    def caption_tars(self, data):
        """As img2dataset writes them: a picture, its caption and its facts."""
        pairs = list(captions(self.rows))
        for part in range(2):
            with tarfile.open("%s/%05d.tar" % (data, part), "w") as tar:
                for number, (name, text) in enumerate(pairs[part::2]):
                    key = "%05d%04d" % (part, number)
                    with open(os.path.join(self.photos, name), "rb") as file:
                        picture = file.read()
                    facts = {"caption": text, "key": key, "status": "success", "url": "https://a/b"}
                    for extension, content in (
                        (name.rpartition(".")[2], picture),
                        ("txt", text.encode()),
                        ("json", json.dumps(facts).encode()),
                    ):
                        member = tarfile.TarInfo(key + "." + extension)
                        member.size = len(content)
                        tar.addfile(member, io.BytesIO(content))

    def hub_parquet(self, data):
        """Images in structs, conversations in lists of structs."""
        self.draw(data + "/drawn", "--format", "parquet", "--preset", "receipts")
        (drawn,) = glob.glob(data + "/drawn/*.parquet")
        os.rename(drawn, data + "/train-00000-of-00001.parquet")
        os.rmdir(data + "/drawn")

    def photographs_with_texts(self, data):
        """a.jpg and a.txt."""
        for name, text in captions(self.rows):
            shutil.copy(os.path.join(self.photos, name), data)
            with open(data + "/" + name.rpartition(".")[0] + ".txt", "w", encoding="utf-8") as file:
                file.write(text + "\n")

    def photographs_with_a_table(self, data):
        """metadata.csv beside the photographs."""
        with open(data + "/metadata.csv", "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["file_name", "text"])
            for name, text in captions(self.rows):
                shutil.copy(os.path.join(self.photos, name), data)
                table.writerow([name, text])

    def chats(self, data):
        """JSON lines of roles and contents, without images."""
        roles = {"system": "system", "human": "user", "gpt": "assistant"}
        with open(data + "/chats.jsonl", "w", encoding="utf-8") as file:
            for row in self.rows:
                turns = [
                    {"role": roles[turn["from"]], "content": turn["value"].replace("<image>", "")}
                    for turn in row["conversations"]
                ]
                file.write(json.dumps({"messages": turns}) + "\n")


class FiveSetsTest(unittest.TestCase):
    NAMES = {
        "llava": "an array of LLaVA and a folder of images",
        "caption_tars": "caption tars, as img2dataset writes them",
        "hub_parquet": "Parquet of the hub, images in structs",
        "photographs_with_texts": "photographs, `a.jpg` and `a.txt`",
        "photographs_with_a_table": "photographs and `metadata.csv`",
        "chats": "chats in JSON lines, without images",
    }

    @classmethod
    def setUpClass(cls):
        cls.root = os.environ.get("BARE_ROOT")
        if not cls.root and importlib.util.find_spec("pip") is None:
            raise unittest.SkipTest("there is no pip (package python3-pip)")
        if not cls.root and not any(map(importlib.util.find_spec, ("numpy", "torch"))):
            raise unittest.SkipTest("there is neither numpy nor torch")
        cls.wheel = os.path.abspath(
            os.environ.get("BALLAST_WHEEL")
            or glob.glob("trainer_shim/python/ballast_loader-*.whl")[0]
        )
        with open("README.md", encoding="utf-8") as page:
            cls.lines = re.search(r"<!-- golden path.*?\n```bash\n(.*?)```", page.read(), re.S)[1]
        temporary = tempfile.TemporaryDirectory(prefix="ballast", dir="/tmp")
        cls.addClassCleanup(temporary.cleanup)
        with zipfile.ZipFile(cls.wheel) as wheel:
            for entry in wheel.infolist():
                path = wheel.extract(entry, temporary.name + "/wheel")
                if not entry.is_dir():
                    os.chmod(path, entry.external_attr >> 16)
        cls.sets = Sets(temporary.name + "/wheel/ballast/bin/ballast-server", temporary.name)
        cls.table = []

    @classmethod
    def tearDownClass(cls):
        print("| data set | to a batch | of this, install |\n| --- | --- | --- |")
        for name, whole, install in cls.table:
            print("| %s | %.1f s | %.1f s |" % (cls.NAMES[name], whole, install))

    def follow(self, folder, lines):
        """Runs lines of README in the folder: what they print, and the seconds."""
        if self.root:
            inside = "cd /%s && source venv/bin/activate\n" % os.path.relpath(folder, self.root)
            command = ["unshare", "--mount", "bash", "-euc", IN_ROOT, "bash", self.root]
            command, environment = [*command, inside + lines], None
        else:
            packages = folder + "/packages"
            command = ["bash", "-euo", "pipefail", "-c", lines]
            environment = {
                "HOME": folder, "PYTHONPATH": packages, "PIP_TARGET": packages, "PIP_NO_INDEX": "1",
                "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PATH": ":".join(
                    [packages + "/bin", os.path.dirname(sys.executable), os.environ["PATH"]]),
            }  # fmt: skip
        begin = time.monotonic()
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=300, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        return done.stdout.decode(), time.monotonic() - begin

    def check(self, name, images=True):
        folder = tempfile.mkdtemp(prefix="ballast", dir=(self.root or "") + "/tmp")
        self.addCleanup(shutil.rmtree, folder)
        for made in ("data", "dist"):
            os.mkdir(os.path.join(folder, made))
        shutil.copy(self.wheel, folder + "/dist")
        getattr(self.sets, name)(folder + "/data")
        if self.root:
            place = "/" + os.path.relpath(folder, self.root) + "/venv"
            subprocess.run(
                ["chroot", self.root, "python3", "-m", "venv", "--system-site-packages", place],
                check=True,
            )  # fmt: skip
        install, rest = self.lines.split("\n", 1)
        _, of_install = self.follow(folder, install)
        said, seconds = self.follow(folder, rest)
        self.table.append((name, of_install + seconds, of_install))
        self.assertRegex(said, r" %d samples in " % SAMPLES)
        self.assertRegex(said, r"\ninput_ids \(1, [1-9][0-9]{2,}\)\n")
        self.assertRegex(said, r"\npixel_values \(%s, 1176\)\n" % ("[1-9][0-9]+" if images else 0))
        self.assertLess(of_install + seconds, MOST_SECONDS)

    def test_arrays_of_llava(self):
        self.check("llava")

    def test_caption_tars(self):
        self.check("caption_tars")

    def test_parquet_of_the_hub(self):
        self.check("hub_parquet")

    def test_photographs_with_texts(self):
        self.check("photographs_with_texts")

    def test_photographs_with_a_table(self):
        self.check("photographs_with_a_table")

    def test_chats(self):
        self.check("chats", images=False)


if __name__ == "__main__":
    unittest.main()
