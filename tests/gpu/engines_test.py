"""The part of engines.py that needs no GPU: corpora, indexes, servers, and blocks that
are pulled from them with `device` and `host`."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

from tests.gpu import engines
from tests.harness import tools


def jpeg(marker, width, height, before=b""):
    frame = struct.pack(">BHHB", 8, height, width, 0)
    return (b"\xff\xd8" + before + bytes((0xFF, marker))
            + struct.pack(">H", 2 + len(frame)) + frame + bytes(32))  # fmt: skip


class EnginesTest(unittest.TestCase):
    def setUp(self):
        # pylint: disable-next=consider-using-with
        folder = tempfile.TemporaryDirectory(prefix="ballast", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def frame_of(self, data):
        path = f"{self.folder}/picture.jpg"
        with open(path, "wb") as file:
            file.write(data)
        return engines.frame_of(path)

    def test_finds_the_frame_of_a_jpeg(self):
        self.assertEqual(self.frame_of(jpeg(0xC0, 1200, 900)), (0xC0, 1200, 900))
        tables = b"\xff\xc4" + struct.pack(">H", 6) + bytes(4)
        self.assertEqual(self.frame_of(jpeg(0xC2, 7, 5, tables)), (0xC2, 7, 5))
        several = b"\xff\xe2" + struct.pack(">H", 10) + b"MPF\0" + bytes(4)
        self.assertIsNone(self.frame_of(jpeg(0xC0, 1200, 900, several)))
        self.assertIsNone(self.frame_of(b"\x89PNG" + bytes(64)))
        self.assertIsNone(self.frame_of(b""))

    def test_serves_receipts_with_device_and_host(self):
        os.mkdir(f"{self.folder}/bin")
        for name in ("ballast-server", "ballastctl"):
            os.symlink(tools.program(name), f"{self.folder}/bin/{name}")
        done = subprocess.run(
            [sys.executable, engines.__file__, "--bundle", self.folder, "--without-gpu",
             "--only", "receipts", "--receipts", "24", "--shares", "0.5",
             "--out", f"{self.folder}/out"],
            capture_output=True, text=True, timeout=tools.TIMEOUT_S, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(f"{self.folder}/out/results.json", encoding="utf-8") as file:
            result = json.load(file)["receipts"]
        for name in ("device", "host", "device8", "device_share0.5"):
            self.assertEqual(len(result[name]), 3, result)
        sizes = {
            name: sum(batch["bytes"] for batch in result[name])
            for name in ("device", "host", "device_share0.5")
        }
        # 1.1 megapixels take 3 MB as pixels, and about 0.15 as a file.
        self.assertLess(5 * sizes["device"], sizes["host"])
        self.assertLess(sizes["device"], sizes["device_share0.5"])
        self.assertLess(sizes["device_share0.5"], sizes["host"])


if __name__ == "__main__":
    unittest.main()
