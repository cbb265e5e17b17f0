"""Data sets in Azure Blob Storage, as a fake of its REST API serves them, against the same
files on disk."""

import base64
import json
import os
import unittest
from unittest import mock

from tests.harness import tools
from tests.integration.storage import azure_server, store_server, store_testing

# Without the credentials of whoever runs the test.
NONE = {name: "" for name in (
    "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_CONNECTION_STRING", "AZURE_TENANT_ID", "AZURE_CLIENT_ID",
)}  # fmt: skip
KEYS = {
    **NONE,
    "AZURE_STORAGE_ACCOUNT": azure_server.ACCOUNT,
    "AZURE_STORAGE_KEY": azure_server.KEY,
}
WRONG = base64.b64encode(b"the key of another account").decode()


class AzureTest(store_testing.StoreJob):
    SCHEME = "abfs"
    PAGE = store_server.PAGE

    def setUp(self):
        self.azure = azure_server.AzureServer(self.root)
        self.addCleanup(self.azure.close)
        patch = mock.patch.dict(os.environ, KEYS)
        patch.start()
        self.addCleanup(patch.stop)

    def s3_job(self, name, form="webdataset", more="", endpoint=None, bucket="bucket",
               settings="", **others):  # fmt: skip
        """As of S3Job, in this store."""
        storage = "storage: {azure: {endpoint: \"%s\"%s}%s}" % (
            endpoint or self.azure.endpoint, settings, more,
        )  # fmt: skip
        return self.job(name, form, "abfs://" + bucket, storage, **others)

    def status(self, address):
        return json.loads(self.ok("ballastctl", "--server", address, "status", "--json"))

    def test_gives_the_batches_of_local_files(self):
        self.gives_the_batches()
        ranged = [r for r in self.azure.requests if r[2]]
        self.assertTrue(ranged)

    def test_a_connection_string_is_as_good_as_the_variables(self):
        text = "DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=%s/%s" % (
            azure_server.ACCOUNT, azure_server.KEY, self.azure.endpoint, azure_server.ACCOUNT,
        )  # fmt: skip
        path = self.write("connection", text)
        with mock.patch.dict(os.environ, NONE):
            storage = 'storage: {azure: {credentials: "%s"}}' % path
            config = self.job("connection_job", "webdataset", "abfs://bucket", storage)
            self.assertIn(" 0 bad", self.index(config))

    def test_globs_are_listed_over_several_pages(self):
        self.lists_over_several_pages()

    def test_another_version_is_noticed(self):
        self.notices_another_version()

    def test_blobs_that_change_while_they_are_read_are_not_trained_on(self):
        # Nothing of the good version stays in memory.
        config = self.s3_job("changing", more=", ahead_steps: 0, memory: 1MiB", timeout=5)
        self.index(config)
        folder = os.path.join(self.bucket, "webdataset")
        tars = [os.path.join(folder, name) for name in os.listdir(folder) if ".tar" in name]
        with self.server(config, "127.0.0.1:0") as (address,):
            self.pull(address, 1)
            for path in tars:
                before = os.stat(path)
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
                self.addCleanup(os.utime, path, ns=(before.st_atime_ns, before.st_mtime_ns))
            # Far from the first: no server has built it ahead.
            done = tools.run(
                "ballastctl", "--server", address, "pull", "--module", "vision",
                "--dp-rank", 0, "--step", 40, "--give-up-after", 8,
            )  # fmt: skip
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertIn("changed", done.stderr.decode())
            self.assertEqual(self.status(address)["bad_samples"], [])

    def test_failures_in_the_middle_give_the_same_batches(self):
        config = self.s3_job("failing", more=", ahead_steps: 0, memory: 1MiB")
        self.index(config)
        # Far apart: what a server has built ahead needs no store.
        starts = {"failures": 0, "cuts": 40, "slow": 80}
        local = self.local_job("local_failing")
        self.index(local)
        with self.server(local, "127.0.0.1:0") as (address,):
            wanted = {name: self.pull(address, 2, step) for name, step in starts.items()}
        with self.server(config, "127.0.0.1:0") as (address,):
            for name, step in starts.items():
                self.azure.delay = 0.05 if name == "slow" else 0.0
                if name != "slow":
                    setattr(self.azure, name, 2)
                self.assertEqual(self.pull(address, 2, step), wanted[name])
            self.assertEqual(self.status(address)["bad_samples"], [])
        self.assertEqual((self.azure.failures, self.azure.cuts), (0, 0))

    def test_wrong_keys_are_refused_without_the_secret(self):
        config = self.s3_job("keys")
        message = self.refused(config, {"AZURE_STORAGE_KEY": WRONG})
        self.assertIn("AuthenticationFailed", message)
        self.assertIn("check that the keys that storage.azure.credentials names", message)
        self.assertNotIn(WRONG, message)
        message = self.refused(config, {"AZURE_STORAGE_KEY": "NOBASE64!"})
        self.assertNotIn("NOBASE64!", message)
        # Not signed: the store does not answer anybody.
        message = self.refused(self.s3_job("nobody", settings=", credentials: anonymous"))
        self.assertIn("storage.azure.credentials", message)

    def test_what_is_wrong_is_said_in_bounded_time(self):
        message = self.refused(self.s3_job("bare", settings=", account: mine"), NONE)
        self.assertIn("storage.azure.credentials is environment, but none of", message)
        message = self.refused(self.s3_job("whose", settings=", credentials: anonymous"), NONE)
        self.assertIn("storage.azure.account is not set", message)
        self.assertEqual(self.azure.requests, [])
        message = self.refused(self.s3_job("nobody", bucket="nobody"))
        self.assertIn("abfs://nobody", message)
        self.azure.refuse = 503
        message = self.refused(self.s3_job("busy"))
        self.assertIn("abfs://bucket/webdataset: cannot list", message)
        self.azure.refuse = None
        self.azure.close()
        message = self.refused(self.s3_job("dead"))
        self.assertIn("is storage.azure.endpoint right?", message)
        self.assertNotIn(azure_server.KEY, message)
        self.setUp()

    def test_init_writes_what_runs(self):
        self.init_writes_what_runs("--azure-endpoint", self.azure.endpoint)


if __name__ == "__main__":
    unittest.main()
