"""Data sets in Google Cloud Storage, as a fake of its JSON API serves them, against the same
files on disk."""

import os
import time
import unittest

from tests.integration.command_line import tools
from tests.integration.storage import gcs_server, s3_test

# Without the credentials and projects of whoever runs the test.
BARE = {"HOME": "/nowhere", "GOOGLE_APPLICATION_CREDENTIALS": ""}


class GcsTest(s3_test.S3Job):
    FORMS = ("webdataset", "parquet", "energon")

    def setUp(self):
        self.gcs = gcs_server.GcsServer(self.root)
        self.addCleanup(self.gcs.close)

    def s3_job(self, name, form="webdataset", more="", endpoint=None, bucket="bucket",
               credentials="anonymous", **settings):  # fmt: skip
        """As of S3Job, in this store."""
        storage = "storage: {gcs: {endpoint: \"%s\", credentials: %s}%s}" % (
            endpoint or self.gcs.endpoint, credentials, more,
        )  # fmt: skip
        return self.job(name, form, "gs://" + bucket, storage, **settings)

    def test_tars_give_the_batches_of_local_files(self):
        self.gives_the_batches_of_local_files("webdataset")
        ranged = [r for r in self.gcs.requests if r[2]]
        self.assertTrue(ranged)
        self.assertTrue(all("generation=" in path for _, path, _ in ranged))

    def test_parquet_gives_the_batches_of_local_files(self):
        self.gives_the_batches_of_local_files("parquet")

    def test_energon_gives_the_batches_of_local_files(self):
        self.gives_the_batches_of_local_files("energon")

    def test_globs_are_listed_over_several_pages(self):
        many = os.path.join(self.bucket, "many")
        os.makedirs(many)
        count = 3 * gcs_server.PAGE + 1
        for i in range(count):
            os.link(
                os.path.join(self.bucket, "webdataset", "docs-000000.tar"),
                os.path.join(many, "part-%03d.tar" % i),
            )
        self.sources["many"] = "format: webdataset, path: \"{0}/many/part-*.tar\""
        self.addCleanup(self.sources.pop, "many")
        text = self.index(self.s3_job("many", "many"))
        self.assertIn("%d samples" % (count * s3_test.SAMPLES), text.replace(",", ""))

    def test_another_version_is_noticed(self):
        config = self.s3_job("stale")
        self.index(config)
        path = os.path.join(self.bucket, "webdataset", "docs-000000.tar")
        before = os.stat(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
        self.addCleanup(os.utime, path, ns=(before.st_atime_ns, before.st_mtime_ns))
        done = tools.run("ballast-server", "serve", "--config", config)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is another version in the store", done.stderr.decode())

    def test_what_is_wrong_is_said_in_bounded_time(self):
        def refused(config):
            start = time.monotonic()
            done = tools.run("ballast-server", "index", "--config", config, env=BARE)
            self.assertEqual(done.returncode, 1)
            self.assertLess(time.monotonic() - start, 120)
            return done.stderr.decode()

        message = refused(self.s3_job("bare", credentials="environment"))
        self.assertIn("storage.gcs.credentials is environment, but", message)
        self.assertEqual(self.gcs.requests, [])
        key = self.write("key.json", "{\"type\": \"authorized_user\", \"x\": \"HIDDEN\"}")
        message = refused(self.s3_job("other", credentials=key))
        self.assertIn("key.json is not the JSON key file of a service account", message)
        self.assertNotIn("HIDDEN", message)
        message = refused(self.s3_job("nobody", bucket="nobody"))
        self.assertIn("gs://nobody", message)
        self.gcs.refuse = 403
        message = refused(self.s3_job("forbidden"))
        self.assertIn("gs://bucket/webdataset: cannot list", message)
        self.assertIn("check that the keys that storage.gcs.credentials names", message)
        self.gcs.close()
        message = refused(self.s3_job("dead"))
        self.assertIn("is storage.gcs.endpoint right?", message)
        self.setUp()

    def test_init_writes_what_runs(self):
        for form in ("webdataset", "energon"):
            extra = os.path.join(self.bucket, form, "ballast.yaml")
            if os.path.exists(extra):
                os.remove(extra)
        out = self.path("init.yaml")
        options = ["--gcs-endpoint", self.gcs.endpoint, "--gcs-credentials", "anonymous"]
        said = self.ok("ballast-server", "init", "gs://bucket", "--out", out, *options)
        self.assertIn("gs://bucket/webdataset/docs-000000.tar, %d samples" % s3_test.SAMPLES, said)
        self.assertIn("gs://bucket/energon", said)
        self.assertIn(" 0 bad", self.ok("ballast-server", "index", "--config", out))
        other = self.path("other.yaml")
        message = self.error("ballast-server", "init", "s3://bucket", "--out", other, *options)
        self.assertIn("--gcs-… for a store of another kind", message)


class AzureTest(tools.ToolTest):
    """No emulator is at hand: what is wrong is said, and when."""

    def index(self, storage, env):
        config = self.write("azure.yaml", s3_test.CONFIG.format(
            source="format: webdataset, path: \"abfs://container/docs-*.tar\"",
            storage="storage: {azure: {%s}}" % storage, timeout=30,
        ))  # fmt: skip
        start = time.monotonic()
        done = tools.run("ballast-server", "index", "--config", config, env=env)
        self.assertEqual(done.returncode, 1)
        self.assertLess(time.monotonic() - start, 120)
        return done.stderr.decode()

    def test_what_is_wrong_is_said_in_bounded_time(self):
        none = {name: "" for name in (
            "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_STORAGE_CONNECTION_STRING", "AZURE_TENANT_ID", "AZURE_CLIENT_ID",
        )}  # fmt: skip
        message = self.index("account: mine", none)
        self.assertIn("storage.azure.credentials is environment, but none of", message)
        dead = "endpoint: \"http://127.0.0.1:1\""
        message = self.index(dead + ", credentials: anonymous", none)
        self.assertIn("storage.azure.account is not set", message)
        keys = {**none, "AZURE_STORAGE_ACCOUNT": "mine", "AZURE_STORAGE_KEY": "aGlkZGVua2V5"}
        message = self.index(dead, keys)
        self.assertIn("is storage.azure.endpoint right?", message)
        self.assertNotIn("aGlkZGVua2V5", message)
        keys["AZURE_STORAGE_KEY"] = "NOBASE64!"
        message = self.index(dead, keys)
        self.assertNotIn("NOBASE64!", message)


if __name__ == "__main__":
    unittest.main()
