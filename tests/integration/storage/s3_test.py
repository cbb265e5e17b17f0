"""Data sets in S3, served and cached, against the same files on disk."""

import contextlib
import glob
import json
import os
import shutil
import subprocess
import sys
import tarfile
import unittest

from tests.harness import tools
from tests.integration.storage import s3_server

SECRET = s3_server.KEYS["AWS_SECRET_ACCESS_KEY"]
SAMPLES = 32

CONFIG = """
sources:
  - {{name: docs, {source}}}
model: {{profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 50176{model}}}
batch: {{global: 8, micro: 8, max_tokens: 8192}}
topology: {{modules: {{vision: {{dp: 2}}, language: {{dp: 1}}}}}}
serve: {{listen: ["127.0.0.1:0"], read_timeout: {timeout}, read_attempts: 2}}
{storage}
"""

# Files travel as they are.
ENCODED = ", decode: device, device_unchecked: true"


def write_lines(tars, folder):
    """Writes the samples of tars as JSON lines and images below media/."""
    os.makedirs(os.path.join(folder, "media"))
    lines = []
    for path in sorted(tars):
        with tarfile.open(path) as tar:
            members = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}
        samples = {}
        for name, content in members.items():
            samples.setdefault(name.split(".")[0], {})[name] = content
        for parts in samples.values():
            text = {}
            images = []
            for name in sorted(parts):
                if name.endswith(".json"):
                    text = json.loads(parts[name])
                else:
                    images.append(name)
                    path = os.path.join(folder, "media", name)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with open(path, "wb") as file:
                        file.write(parts[name])
            if "messages" in text or "conversations" in text:
                lines.append(json.dumps({**text, "images": images}))
    with open(os.path.join(folder, "chat.jsonl"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


class S3Job(tools.ToolTest):
    """Jobs over drawn data sets in a bucket and on disk."""

    FORMS = ("webdataset", "parquet")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ.update(s3_server.KEYS)
        cls.root = os.path.join(cls.folder, "root")
        cls.bucket = os.path.join(cls.root, "bucket")
        os.makedirs(cls.bucket)
        for form in cls.FORMS:
            done = tools.run(
                "ballast-server", "make-corpus", "--out", os.path.join(cls.bucket, form),
                "--samples", SAMPLES, "--preset", "mixed", "--format", form,
            )  # fmt: skip
            if b"does not know Parquet" in done.stderr:
                print("SKIPPED: this build has no Arrow")
                sys.exit(0)
            if done.returncode != 0:
                raise AssertionError(done.stderr.decode())
        cls.sources = {
            "webdataset": 'format: webdataset, path: "{0}/webdataset/docs-*.tar"',
            "jsonl": 'format: jsonl, path: "{0}/jsonl/chat.jsonl", media_root: "{0}/jsonl/media"',
            "parquet": 'format: parquet, path: "{0}/parquet/*.parquet"',
            "energon": 'format: energon, path: "{0}/energon", energon: {{crude: webdataset}}',
        }

    def setUp(self):
        self.s3 = s3_server.S3Server(self.root).start()
        self.addCleanup(self.s3.stop)

    def job(self, name, form, where, storage="", timeout=30, model=""):
        """Writes a configuration in a folder of its own; answers its path."""
        os.makedirs(self.path(name), exist_ok=True)
        return self.write(
            os.path.join(name, "job.yaml"),
            CONFIG.format(
                source=self.sources[form].format(where),
                storage=storage,
                timeout=timeout,
                model=model,
            ),
        )

    def s3_job(self, name, form="webdataset", more="", endpoint=None, bucket="bucket",
               **settings):  # fmt: skip
        endpoint = endpoint or self.s3.endpoint
        storage = 'storage: {s3: {endpoint: "%s"}%s}' % (endpoint, more)
        return self.job(name, form, "s3://" + bucket, storage, **settings)

    def local_job(self, name, form="webdataset", bucket=None, **settings):
        return self.job(name, form, bucket or self.bucket, **settings)

    def index(self, config):
        return self.ok("ballast-server", "index", "--config", config)

    def fingerprint(self, config):
        plan = self.ok("ballast-server", "plan", "--config", config, "--step", 0, "--json")
        return json.loads(plan)["fingerprint"]

    def pull(self, address, steps, first=0):
        """What all ranks get, one line a block, with hashes of the bytes."""
        lines = []
        for module, ranks in (("vision", 2), ("language", 1)):
            for rank in range(ranks):
                for line in self.json_lines(
                    "ballastctl", "--server", address, "pull", "--module", module,
                    "--dp-rank", rank, "--step", first, "--steps", steps, "--json",
                ):  # fmt: skip
                    lines.append(tools.without_ms(line))
        return lines

    def local_batches(self, form, steps, first=0, **settings):
        config = self.local_job("local_" + form, form, **settings)
        self.index(config)
        with self.server(config, "127.0.0.1:0") as (address,):
            return self.fingerprint(config), self.pull(address, steps, first)

    @contextlib.contextmanager
    def proxy(self):
        """A proxy in front of the store (tests/cluster/proxy.py); yields its endpoint, and a
        function that gives it an order."""
        host, port = self.s3.address.split(":")
        with subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.proxy", "0", host, port],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            own = process.stdout.readline().split()[1]

            def order(line):
                process.stdin.write(line + "\n")
                process.stdin.flush()
                return process.stdout.readline()

            yield "http://127.0.0.1:" + own, order
            process.stdin.close()

    def gives_the_batches_of_local_files(self, form):
        config = self.s3_job("s3_" + form, form)
        text = self.index(config)
        self.assertIn(" 0 bad", text)
        self.assertIn("up to date", self.index(config))
        fingerprint, local = self.local_batches(form, 2)
        # Where the data lie is not what they are.
        self.assertEqual(self.fingerprint(config), fingerprint)
        with self.server(config, "127.0.0.1:0") as (address,):
            self.assertEqual(self.pull(address, 2), local)
            status = json.loads(self.ok("ballastctl", "--server", address, "status", "--json"))
            self.assertGreater(status["storage"]["fetched_bytes"], 0)


class S3Test(S3Job):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tars = glob.glob(os.path.join(cls.bucket, "webdataset", "*.tar"))
        write_lines(tars, os.path.join(cls.bucket, "jsonl"))

    def test_every_format_gives_the_batches_of_local_files(self):
        for form in ("webdataset", "jsonl", "parquet"):
            with self.subTest(form):
                self.gives_the_batches_of_local_files(form)

    def test_a_second_epoch_comes_from_the_cache_alone(self):
        cache = self.path("cache")
        for form in ("webdataset", "jsonl", "parquet"):
            with self.subTest(form):
                more = ', cache: {dir: "%s", size: 1GiB}' % cache
                config = self.s3_job("cached_" + form, form, more)
                self.index(config)
                epoch = SAMPLES // 8
                _, local = self.local_batches(form, epoch, first=epoch)
                with self.server(config, "127.0.0.1:0") as (address,):
                    self.pull(address, epoch)
                    self.s3.stop()
                    self.assertEqual(self.pull(address, epoch, first=epoch), local)
                    status = json.loads(
                        self.ok("ballastctl", "--server", address, "status", "--json")
                    )["storage"]
                    self.assertGreater(status["cache_bytes"], 0)
                    self.assertEqual(status["errors"], 0)
                self.s3.start()

    def test_fetch_fills_the_cache_for_a_later_server(self):
        more = ', cache: {dir: "%s", size: 1GiB}' % self.path("fetched")
        config = self.s3_job("fetch", "webdataset", more)
        self.index(config)
        epoch = SAMPLES // 8
        text = self.ok("ballast-server", "fetch", "--config", config, "--steps", epoch)
        self.assertRegex(text, r"^4 steps from step 0: [0-9.]+ MiB fetched")
        again = self.ok("ballast-server", "fetch", "--config", config, "--steps", epoch)
        self.assertIn(" 0.0 MiB fetched", again)
        _, local = self.local_batches("webdataset", epoch)
        with self.server(config, "127.0.0.1:0") as (address,):
            self.s3.stop()
            self.assertEqual(self.pull(address, epoch), local)
            status = json.loads(self.ok("ballastctl", "--server", address, "status", "--json"))
            self.assertEqual(status["storage"]["fetched_bytes"], 0)
            self.assertEqual(status["storage"]["stalls"], 0)

    def test_a_damaged_cache_entry_is_fetched_again(self):
        for form in self.FORMS:
            for name, model in (("pixels", ""), ("encoded", ENCODED)):
                with self.subTest(form=form, images=name):
                    self.serves_what_is_damaged("%s_%s" % (form, name), form, model)

    def serves_what_is_damaged(self, name, form, model):
        cache = self.path("damaged_" + name)
        more = ', cache: {dir: "%s", size: 1GiB}' % cache
        config = self.s3_job("damage_" + name, form, more, model=model)
        self.index(config)
        self.ok("ballast-server", "fetch", "--config", config, "--steps", 4)
        entries = [p for p in glob.glob(cache + "/*/*") if os.path.isfile(p)]
        self.assertTrue(entries)
        for path in entries:
            with open(path, "r+b") as file:
                file.seek(os.path.getsize(path) // 2)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 1]))
        _, local = self.local_batches(form, 4, model=model)
        with self.server(config, "127.0.0.1:0") as (address,):
            self.assertEqual(self.pull(address, 4), local)
            status = json.loads(self.ok("ballastctl", "--server", address, "status", "--json"))
            self.assertEqual(status["bad_samples"], [])
            self.assertGreater(status["storage"]["cache_damaged"], 0)

    def test_a_store_that_goes_and_comes_back(self):
        config = self.s3_job("killed", timeout=5)
        self.index(config)
        _, local = self.local_batches("webdataset", 4)
        with self.server(config, "127.0.0.1:0") as (address,):
            # Before the first pull, which may read all of so small a data set ahead.
            self.s3.stop()
            done = tools.run(
                "ballastctl", "--server", address, "pull", "--module", "vision",
                "--dp-rank", 0, "--steps", 2, "--give-up-after", 8,
            )  # fmt: skip
            self.assertNotEqual(done.returncode, 0)
            self.assertNotIn(SECRET, done.stderr.decode())
            self.s3.start()
            self.assertEqual(self.pull(address, 4), local)
            status = json.loads(self.ok("ballastctl", "--server", address, "status", "--json"))
            self.assertEqual(status["bad_samples"], [])

    def test_a_slow_store_gives_the_same_batches(self):
        with self.proxy() as (endpoint, order):
            config = self.s3_job("slow", endpoint=endpoint)
            self.index(config)
            _, local = self.local_batches("webdataset", 2)
            with self.server(config, "127.0.0.1:0") as (address,):
                order("delay 0.05")
                self.assertEqual(self.pull(address, 2), local)
                order("none")

    def test_wrong_keys_say_what_to_do_without_the_secret(self):
        config = self.s3_job("keys")
        for wrong in (
            {"AWS_SECRET_ACCESS_KEY": "WRONGSECRET"},
            {"AWS_ACCESS_KEY_ID": "OTHERKEY", "AWS_SECRET_ACCESS_KEY": "WRONGSECRET"},
        ):
            done = tools.run("ballast-server", "index", "--config", config, env=wrong)
            message = done.stderr.decode()
            self.assertEqual(done.returncode, 1, message)
            self.assertIn("storage.s3.credentials", message)
            self.assertNotIn("WRONGSECRET", message)
        keys = self.write(
            "keys/keys.ini",
            "[default]\naws_access_key_id = %s\n"
            "aws_secret_access_key = %s\n" % tuple(s3_server.KEYS.values()),
        )
        with open(config, encoding="utf-8") as file:
            text = file.read().replace("s3: {", "s3: {credentials: keys.ini, ")
        self.write("keys/job.yaml", text)
        self.assertTrue(os.path.exists(keys))
        self.index(config)
        # A store without an object, and a bucket that is not there.
        for path, word in (("s3://bucket/none.tar", "none.tar"), ("s3://nobody/*.tar", "nobody")):
            self.job("missing", "webdataset", "x")
            config = self.s3_job("missing")
            with open(config, encoding="utf-8") as file:
                text = file.read().replace("s3://bucket/webdataset/docs-*.tar", path)
            self.write("missing/job.yaml", text)
            message = self.error("ballast-server", "index", "--config", config)
            self.assertIn(word, message)

    def test_a_bucket_that_changes_is_not_trained_on(self):
        mine = os.path.join(self.root, "mine")
        shutil.copytree(self.bucket, mine)
        # Nothing of the good version stays in memory.
        more = ", ahead_steps: 0, memory: 1MiB"
        config = self.s3_job("changing", more=more, bucket="mine", timeout=5)
        self.index(config)
        tars = sorted(glob.glob(mine + "/webdataset/*.tar"))
        good = {}
        for path in tars:
            with open(path, "rb") as file:
                good[path] = file.read()

        def change():
            """A byte inside an image of every tar: text and headers stay."""
            for path in tars:
                with tarfile.open(path) as tar:
                    image = max(tar.getmembers(), key=lambda m: m.size)
                with open(path, "r+b") as file:
                    file.seek(image.offset_data + image.size // 2)
                    byte = file.read(1)
                    file.seek(-1, os.SEEK_CUR)
                    file.write(bytes([byte[0] ^ 0x55]))

        with self.server(config, "127.0.0.1:0") as (address,):
            local = self.pull(address, 1)
            change()
            done = tools.run(
                "ballastctl", "--server", address, "pull", "--module", "vision",
                "--dp-rank", 0, "--step", 3, "--give-up-after", 8,
            )  # fmt: skip
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertIn("changed", done.stderr.decode())
            for path, content in good.items():
                with open(path, "wb") as file:
                    file.write(content)
        change()
        message = self.error("ballast-server", "plan", "--config", config, "--step", 0)
        self.assertIn("another version in the store", message)
        self.assertIn("rebuilt: ", self.index(config))
        self.assertTrue(local)


if __name__ == "__main__":
    s3_server.skip_without_rclone()
    unittest.main()
