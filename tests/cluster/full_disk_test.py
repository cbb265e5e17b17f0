"""A file system that is full while an index is written, or a cache is opened: the command says
so, leaves no part of an index behind and the former one in place, and succeeds once there is room.

    bazel test //tests/cluster:full_disk_test
"""

import contextlib
import os
import subprocess
import sys
import unittest

from tests.cluster import corpora, mirror, nodes
from tests.harness import tools

CONFIG = """
sources:
  - {{name: docs, format: webdataset, path: "{folder}/docs-*.tar", index: "{disk}/docs.index"}}
model: {{profile: qwen2_5_vl, tokenizer: bytes}}
batch: {{global: 12, micro: 12, max_tokens: 8192}}
topology: {{modules: {{language: {{dp: 1}}}}}}
"""
CACHE = """
storage: {{cache: {{dir: "{disk}/cache", size: 1MiB}}}}
"""


class FullDiskTest(tools.JobTest):
    def setUp(self):
        super().setUp()
        self.disk = f"{self.folder}/disk"
        os.mkdir(self.disk)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", self.disk], check=True)
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)
        config = self.write("job.yaml", CONFIG.format(folder=self.folder, disk=self.disk))
        self.index = ("ballast-server", "index", "--config", config)

    def test_the_former_index_stays(self):
        # 64 bytes a sample: 16 KiB, then 640 KiB.
        corpora.write_texts(f"{self.folder}/docs-0.tar", 256)
        self.ok(*self.index)
        with open(f"{self.disk}/docs.index", "rb") as file:
            former = file.read()
        corpora.write_texts(f"{self.folder}/docs-0.tar", 10240)
        error = self.error(*self.index)
        self.assertIn(f"{self.disk}/docs.index", error)
        self.assertIn("No space left on device", error)
        self.assertEqual(os.listdir(self.disk), ["docs.index"])
        with open(f"{self.disk}/docs.index", "rb") as file:
            self.assertEqual(file.read(), former)
        subprocess.run(["mount", "-o", "remount,size=8m", self.disk], check=True)
        self.ok(*self.index)
        self.ok(*self.index, "--verify")

    def test_a_cache_without_room_is_refused(self):
        corpora.write_texts(f"{self.folder}/docs-0.tar", 16)
        cached = CONFIG.replace('path: "', 'path: "file://') + CACHE
        config = self.write("cached.yaml", cached.format(folder=self.folder, disk=self.disk))
        index = ("ballast-server", "index", "--config", config)
        with open(f"{self.disk}/other", "wb") as other, contextlib.suppress(OSError):
            while True:
                os.write(other.fileno(), bytes(4096))
        error = self.error(*index)
        self.assertIn(f"storage.cache.dir: {self.disk}/cache: cannot write", error)
        self.assertIn("No space left on device", error)
        os.remove(f"{self.disk}/other")
        self.ok(*index)


if __name__ == "__main__":
    # Tests have a short PATH.
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    try:
        mirror.own_mounts()
    except OSError as error:
        nodes.skip_or_fail(f"nothing can be mounted here (as root?): {error}")
    sys.argv[1:1] = ["-v"]
    unittest.main()
