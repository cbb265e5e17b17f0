"""Data sets in Google Cloud Storage, as a fake of its JSON API serves them, against the same
files on disk."""

import unittest

from tests.integration.storage import gcs_server, store_server, store_testing

# Without the credentials and projects of whoever runs the test.
BARE = {"HOME": "/nowhere", "GOOGLE_APPLICATION_CREDENTIALS": ""}


class GcsTest(store_testing.StoreJob):
    SCHEME = "gs"
    PAGE = store_server.PAGE

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

    def test_gives_the_batches_of_local_files(self):
        self.gives_the_batches()
        ranged = [r for r in self.gcs.requests if r[2] and ".tar" in r[1]]
        self.assertTrue(ranged)
        self.assertTrue(all("generation=" in path for _, path, _ in ranged))

    def test_globs_are_listed_over_several_pages(self):
        self.lists_over_several_pages()

    def test_another_version_is_noticed(self):
        self.notices_another_version()

    def test_what_is_wrong_is_said_in_bounded_time(self):
        def refused(config):
            return self.refused(config, env=BARE)

        message = refused(self.s3_job("bare", credentials="environment"))
        self.assertIn("storage.gcs.credentials is environment, but", message)
        self.assertEqual(self.gcs.requests, [])
        key = self.write("key.json", '{"type": "authorized_user", "x": "HIDDEN"}')
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
        options = ["--gcs-endpoint", self.gcs.endpoint, "--gcs-credentials", "anonymous"]
        self.init_writes_what_runs(*options)
        other = self.path("other.yaml")
        message = self.error("ballast-server", "init", "s3://bucket", "--out", other, *options)
        self.assertIn("--gcs-… for a store of another kind", message)


if __name__ == "__main__":
    unittest.main()
