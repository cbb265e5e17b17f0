"""`ballast-server init` on prefixes of an S3 store: what it writes runs as it is."""

import glob
import gzip
import json
import os
import shutil
import sys
import unittest

from tests.harness import tools
from tests.integration.storage import s3_server, s3_test

SAMPLES = 12


class S3InitTest(tools.ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ.update(s3_server.KEYS)
        cls.root = os.path.join(cls.folder, "root")
        cls.bucket = os.path.join(cls.root, "bucket")
        os.makedirs(cls.bucket)
        for form in ("webdataset", "parquet", "energon"):
            folder = os.path.join(cls.bucket, form)
            done = tools.run(
                "ballast-server", "make-corpus", "--out", folder,
                "--samples", SAMPLES, "--preset", "receipts", "--format", form,
            )  # fmt: skip
            if b"does not know Parquet" in done.stderr:
                print("SKIPPED: this build has no Arrow")
                sys.exit(0)
            if done.returncode != 0:
                raise AssertionError(done.stderr.decode())
            os.remove(folder + "/ballast.yaml")
        tars = glob.glob(os.path.join(cls.bucket, "webdataset", "*.tar"))
        lines = os.path.join(cls.bucket, "lines")
        s3_test.write_lines(tars, lines)
        packed = shutil.copytree(lines, os.path.join(cls.bucket, "packed"))
        with open(packed + "/chat.jsonl", "rb") as file:
            with gzip.open(packed + "/chat.jsonl.gz", "wb") as out:
                out.write(file.read())
        os.remove(packed + "/chat.jsonl")

    def setUp(self):
        self.s3 = s3_server.S3Server(self.root).start()
        self.addCleanup(self.s3.stop)

    def init(self, prefix, name, *options):
        """Looks at a prefix of the bucket; answers the path of what it wrote, and its words."""
        os.makedirs(self.path(name), exist_ok=True)
        out = self.path(name, "ballast.yaml")
        said = self.ok(
            "ballast-server", "init", "s3://bucket" + prefix, "--out", out,
            "--s3-endpoint", self.s3.endpoint, *options,
        )  # fmt: skip
        return out, said

    def plan_of(self, config):
        """Indexes, serves and pulls; the plan of step 0."""
        self.assertIn(" 0 bad", self.ok("ballast-server", "index", "--config", config))
        with self.server(config, "127.0.0.1:0") as (address,):
            batches = self.json_lines(
                "ballastctl", "--server", address, "pull", "--module", "language",
                "--dp-rank", 0, "--step", 0, "--steps", 1, "--json",
            )  # fmt: skip
            self.assertEqual(len(batches), 2)
        plan = self.ok("ballast-server", "plan", "--config", config, "--step", 0, "--json")
        return json.loads(plan)

    def local_plan(self, form):
        """The plan of what init writes for the same files in a folder."""
        folder = self.path("local_" + form)
        shutil.copytree(os.path.join(self.bucket, form), folder)
        out = folder + "/ballast.yaml"
        self.ok("ballast-server", "init", folder, "--out", out)
        return self.plan_of(out)

    def test_each_format_runs_as_it_is_and_as_the_same_files_do(self):
        for form, name in (
            ("webdataset", "docs-000000.tar"),
            ("parquet", "docs-000000.parquet"),
            ("lines", "chat.jsonl"),
            ("packed", "chat.jsonl.gz"),
            ("energon", ""),
        ):
            with self.subTest(form):
                config, said = self.init("/" + form, "of_" + form)
                path = ("s3://bucket/%s/%s" % (form, name)).rstrip("/")
                self.assertIn(path + ", 12 samples in 1 file", said)
                self.assertNotIn("left out", said)
                plan = self.plan_of(config)
                # The same lines as before.
                if form != "packed":
                    local = self.local_plan(form)
                self.assertGreater(plan["totals"]["images"], 0)
                # The order follows from the source's name, which is "data" for the
                # folder itself.
                if form != "energon":
                    self.assertEqual(plan["totals"], local["totals"])
                    self.assertEqual(plan["micro_batches"], local["micro_batches"])
                with open(config, encoding="utf-8") as file:
                    for line in file.read().splitlines():
                        if not line.endswith(":") and not line.startswith("#"):
                            self.assertRegex(line, "# |format:|path:|split:")

    def test_a_bucket_of_several(self):
        with open(os.path.join(self.bucket, "preprocessor_config.json"), "w") as file:
            file.write("{}")
        self.addCleanup(os.remove, file.name)
        config, said = self.init("/", "several")
        self.assertIn("docs: parquet s3://bucket/parquet/docs-000000.parquet, 12 samples", said)
        self.assertIn("docs-2: webdataset s3://bucket/webdataset/docs-000000.tar, 12", said)
        self.assertRegex(said, "left out s3://bucket/preprocessor_config.json: .*--model-dir")
        # As of a folder: images lie beside the file, or in a folder of the prefix.
        self.assertRegex(said, "left out s3://bucket/lines/chat.jsonl: .*set media_root")
        self.plan_of(config)

    def test_few_samples_of_large_files_are_read(self):
        """Of 300 samples it reads 64, and estimates the rest from the bytes."""
        big = os.path.join(self.bucket, "big")
        # Texts alone: images take minutes to draw.
        few = ("--samples", 300, "--preset", "text")
        self.ok("ballast-server", "make-corpus", "--out", big, *few)
        self.addCleanup(shutil.rmtree, big)
        _, said = self.init("/big", "estimated")
        found = int(said.split("about ")[1].split(" samples")[0])
        self.assertTrue(150 < found < 600, said)

    def test_the_keys_file_is_named_from_the_configuration(self):
        os.makedirs(self.path("keyed"), exist_ok=True)
        self.write(
            "keyed/keys.ini",
            "[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n"
            % tuple(s3_server.KEYS.values()),
        )
        wrong = {"AWS_SECRET_ACCESS_KEY": "WRONGSECRET"}
        arguments = [
            "init", "s3://bucket/webdataset", "--s3-endpoint", self.s3.endpoint, "--out",
        ]  # fmt: skip
        refused = tools.run("ballast-server", *arguments, self.path("no.yaml"), env=wrong)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("--s3-credentials", refused.stderr.decode())
        self.assertNotIn("WRONGSECRET", refused.stderr.decode())
        config = self.path("keyed/ballast.yaml")
        keys = ["--s3-credentials", self.path("keyed/keys.ini")]
        done = tools.run("ballast-server", *arguments, config, *keys, env=wrong)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        with open(config, encoding="utf-8") as file:
            self.assertIn('credentials: "keys.ini"', file.read())
        indexed = tools.run("ballast-server", "index", "--config", config, env=wrong)
        self.assertEqual(indexed.returncode, 0, indexed.stderr.decode())

    def test_refusals(self):
        out = self.path("refused.yaml")

        def refused(url, *options):
            return self.error("ballast-server", "init", url, "--out", out, *options)

        here = ("--s3-endpoint", self.s3.endpoint)
        self.assertIn(
            "s3://bucket/none: found no object below it; wanted the prefix of a dataset",
            refused("s3://bucket/none", *here),
        )
        self.assertIn("nobody", refused("s3://nobody/none", *here))
        self.assertIn(
            "storage.s3.endpoint: found",
            refused("s3://bucket/webdataset", "--s3-endpoint", "nowhere"),
        )
        self.assertIn("unknown scheme", refused("ftp://bucket/webdataset"))
        self.assertIn("another kind", refused("gs://bucket/webdataset", *here))
        self.assertIn("a folder with options --s3-", refused(self.bucket, *here))
        self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    s3_server.skip_without_rclone()
    unittest.main()
