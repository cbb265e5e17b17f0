"""What every object store must do: data sets in it against the same files on disk."""

import os
import time

from tests.harness import tools
from tests.integration.storage import s3_test


class StoreJob(s3_test.S3Job):
    """Jobs over a store of `SCHEME` whose folders lie in self.root."""

    FORMS = ("webdataset", "parquet", "energon")
    SCHEME = ""
    PAGE = 0  # entries an answer of a listing

    def gives_the_batches(self):
        for form in self.FORMS:
            with self.subTest(form):
                self.gives_the_batches_of_local_files(form)

    def lists_over_several_pages(self):
        many = os.path.join(self.bucket, "many")
        os.makedirs(many)
        count = 3 * self.PAGE + 1
        for i in range(count):
            os.link(
                os.path.join(self.bucket, "webdataset", "docs-000000.tar"),
                os.path.join(many, "part-%03d.tar" % i),
            )
        self.sources["many"] = 'format: webdataset, path: "{0}/many/part-*.tar"'
        self.addCleanup(self.sources.pop, "many")
        text = self.index(self.s3_job("many", "many"))
        self.assertIn("%d samples" % (count * s3_test.SAMPLES), text.replace(",", ""))

    def notices_another_version(self):
        config = self.s3_job("stale")
        self.index(config)
        path = os.path.join(self.bucket, "webdataset", "docs-000000.tar")
        before = os.stat(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
        self.addCleanup(os.utime, path, ns=(before.st_atime_ns, before.st_mtime_ns))
        done = tools.run("ballast-server", "serve", "--config", config)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is another version in the store", done.stderr.decode())

    def refused(self, config, env=None):
        """What the index says that could not be made, within two minutes."""
        start = time.monotonic()
        done = tools.run("ballast-server", "index", "--config", config, env=env)
        self.assertEqual(done.returncode, 1)
        self.assertLess(time.monotonic() - start, 120)
        return done.stderr.decode()

    def init_writes_what_runs(self, *options):
        for form in ("webdataset", "energon"):
            extra = os.path.join(self.bucket, form, "ballast.yaml")
            if os.path.exists(extra):
                os.remove(extra)
        out = self.path("init.yaml")
        where = self.SCHEME + "://bucket"
        said = self.ok("ballast-server", "init", where, "--out", out, *options)
        self.assertIn(where + "/webdataset/docs-000000.tar, %d samples" % s3_test.SAMPLES, said)
        self.assertIn(where + "/energon", said)
        self.assertIn(" 0 bad", self.ok("ballast-server", "index", "--config", out))
