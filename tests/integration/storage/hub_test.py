"""Data sets in the Hugging Face hub, as a fake of its two calls serves them, and on web servers,
against the same files on disk."""

import json
import os
import shutil
import subprocess
import unittest

from tests.harness import tools
from tests.integration.storage import hub_server, s3_test, store_testing

SET = "hf://datasets/team/"
SAMPLES = 160  # of an image each


class HubTest(store_testing.StoreJob):
    SCHEME = "hf"

    def setUp(self):
        # Large files lie elsewhere than their names say.
        self.hub = hub_server.HubServer(self.root)
        self.addCleanup(self.hub.close)
        bare = {"HF_ENDPOINT": self.hub.endpoint, "HF_TOKEN": "", "HF_TOKEN_PATH": "/nowhere"}
        for name, value in bare.items():
            self.addCleanup(os.environ.pop, name, None)
            os.environ[name] = value

    def s3_job(self, name, form="webdataset", more="", endpoint=None, bucket="bucket",
               revision="", **settings):  # fmt: skip
        """As of S3Job, in the hub."""
        storage = "storage: {%s}" % more.lstrip(", ") if more else ""
        return self.job(name, form, SET + bucket + revision, storage, **settings)

    def test_gives_the_batches_of_local_files(self):
        self.gives_the_batches()

    def test_globs_are_listed_over_several_pages(self):
        self.PAGE = 2
        self.lists_over_several_pages()
        self.assertTrue(any("cursor=" in path for _, path, _ in self.hub.requests))

    def test_the_token_stays_with_the_hub(self):
        self.hub.token = "hf_HIDDEN"
        config = self.s3_job("private")
        message = self.refused(config)
        self.assertIn("answered 401 RepoNotFound", message)
        self.assertIn("A private or gated set wants a token", message)
        self.assertIn("set HF_TOKEN", message)
        os.environ["HF_TOKEN"] = "hf_WRONG"
        message = self.refused(config)
        self.assertIn("may the token that was given read it", message)
        self.assertNotIn("hf_WRONG", message)
        os.environ["HF_TOKEN"] = ""
        os.environ["HF_TOKEN_PATH"] = self.write("token", "hf_HIDDEN\n")
        said = self.index(config)
        self.assertIn(" 0 bad", said)
        self.assertNotIn("hf_HIDDEN", said)
        with self.server(config, "127.0.0.1:0") as (address,):
            self.pull(address, 2)
        self.assertTrue(self.hub.places.requests)
        self.assertEqual(self.hub.places.tokens, [])
        os.environ["HF_ENDPOINT"] = "http://192.0.2.1"
        message = self.refused(config)
        self.assertIn("HF_TOKEN would cross the network unencrypted", message)
        self.assertNotIn("hf_HIDDEN", message)

    def test_a_hub_that_is_busy_or_cuts_answers_off(self):
        config = self.s3_job("busy")
        self.index(config)
        _, local = self.local_batches("webdataset", 2)
        self.hub.busy = 3
        self.hub.places.cut = 3
        with self.server(config, "127.0.0.1:0") as (address,):
            self.assertEqual(self.pull(address, 2), local)
            status = json.loads(self.ok("ballastctl", "--server", address, "status", "--json"))
            self.assertEqual(status["bad_samples"], [])
        self.assertEqual((self.hub.busy, self.hub.places.cut), (0, 0))
        # One that does not end.
        self.hub.busy = 10**6
        message = self.refused(self.s3_job("always"))
        self.assertIn("answered 429", message)
        self.assertIn("give HF_TOKEN, which may ask more often", message)

    def test_an_expired_signature_is_asked_for_again(self):
        config = self.s3_job("expired", more=", ahead_steps: 0, memory: 1MiB")
        self.index(config)
        _, local = self.local_batches("webdataset", 4)
        with self.server(config, "127.0.0.1:0") as (address,):
            self.pull(address, 1)
            self.hub.places.expired = {"signature=%d" % i for i in range(self.hub.signature + 1)}
            self.assertEqual(self.pull(address, 4), local)

    def test_a_revision_that_moves(self):
        config = self.s3_job("moving", more=", ahead_steps: 0, memory: 1MiB")
        pinned = self.s3_job("pinned", revision="@" + self.hub.main)
        self.index(config)
        self.index(pinned)
        _, local = self.local_batches("webdataset", 4)
        other = self.path("other_root")
        shutil.copytree(self.root, other)
        os.remove(os.path.join(other, "bucket", "webdataset", "docs-000000.tar"))
        shutil.copy(
            os.path.join(other, "bucket", "energon", "docs-000000.tar"),
            os.path.join(other, "bucket", "webdataset"),
        )
        with open(os.path.join(other, "bucket/webdataset/docs-000000.tar"), "ab") as file:
            file.write(bytes(10240))
        with self.server(config, "127.0.0.1:0") as (address,):
            self.pull(address, 1)
            self.hub.moves_to("second", other)
            # A server stays with the commit that it began with.
            self.assertEqual(self.pull(address, 4), local)
        # Another one sees the next, and refuses the index; one of a commit does not.
        done = tools.run("ballast-server", "serve", "--config", config)
        self.assertEqual(done.returncode, 1)
        self.assertIn("stale index", done.stderr.decode())
        with self.server(pinned, "127.0.0.1:0") as (address,):
            self.assertEqual(self.pull(address, 4), local)
        self.assertIn("rebuilt: ", self.index(config))

    def test_what_is_not_there_is_said(self):
        for where, words in (
            ("hf://datasets/team/nobody/*.tar", "answered 404 RepoNotFound"),
            (SET + "bucket@gone/*.tar", "is the revision's name right"),
            (SET + "bucket/webdataset/none.tar", "is the file's name right"),
            (SET + "bucket/nothing/*.tar", "no object matches"),
            ("hf://models/team/x/*.tar", "names no data set of the hub"),
        ):
            config = self.job("wrong", "webdataset", "x")
            with open(config, encoding="utf-8") as file:
                text = file.read().replace("x/webdataset/docs-*.tar", where)
            message = self.refused(self.write("wrong/job.yaml", text))
            self.assertIn(words, message)

    def test_init_writes_the_commit(self):
        out = self.path("init.yaml")
        said = self.ok("ballast-server", "init", SET + "bucket", "--out", out)
        commit = SET + "bucket@" + self.hub.main
        self.assertIn(commit + "/webdataset/docs-000000.tar, %d samples" % s3_test.SAMPLES, said)
        with open(out, encoding="utf-8") as file:
            self.assertIn('path: "%s/energon"' % commit, file.read())
        self.assertIn(" 0 bad", self.ok("ballast-server", "index", "--config", out))

    def web_job(self, hub, files="{{%s}}"):
        """A job over the tars of a hub, taken for a web server."""
        names = sorted(os.listdir(os.path.join(self.bucket, "webdataset")))
        tars = ",".join(name for name in names if name.endswith(".tar"))
        where = hub.endpoint + "/datasets/team/bucket/resolve/main/webdataset/"
        where += files.replace("%s", tars)
        self.sources["web"] = 'format: webdataset, path: "%s"' % where
        self.addCleanup(self.sources.pop, "web", None)
        return self.job("web", "web", "")

    def test_a_web_server_is_read_by_ranges(self):
        both = self.path("both.pem")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
             "-subj", "/CN=web", "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", both + ".key", "-out", both + ".crt"],
            check=True, capture_output=True, timeout=tools.TIMEOUT_S,
        )  # fmt: skip
        with open(both, "wb") as out:
            for part in (".key", ".crt"):
                with open(both + part, "rb") as file:
                    out.write(file.read())
        web = hub_server.HubServer(self.root, both, both)
        self.addCleanup(web.close)
        config = self.web_job(web)
        self.assertIn("does SSL_CERT_FILE name the CA", self.refused(config))
        self.addCleanup(os.environ.pop, "SSL_CERT_FILE", None)
        os.environ["SSL_CERT_FILE"] = both + ".crt"
        self.assertIn(" 0 bad", self.index(config))
        _, local = self.local_batches("webdataset", 2)
        with self.server(config, "127.0.0.1:0") as (address,):
            self.assertEqual(self.pull(address, 2), local)
        self.assertIn("web servers have no listing", self.refused(self.web_job(web, "*.tar")))
        # From https to http.
        lower = hub_server.HubServer(self.root, both)
        self.addCleanup(lower.close)
        message = self.refused(self.web_job(lower))
        self.assertIn("redirects to " + lower.places.endpoint, message)
        self.assertIn("which is not followed", message)
        self.assertEqual(lower.places.requests, [])

    def test_a_set_is_resumed_and_cached(self):
        big = os.path.join(self.root, "big", "parquet")
        self.ok("ballast-server", "make-corpus", "--out", big, "--samples", SAMPLES,
                "--preset", "receipts", "--format", "parquet")  # fmt: skip
        more = ', cache: {dir: "%s", size: 1GiB}' % self.path("big_cache")
        config = self.s3_job("big", "parquet", more, bucket="big")
        said = self.index(config)
        self.assertRegex(said, r"%d samples, [0-9]{3,} images, 0 skipped, 0 bad" % SAMPLES)
        epoch = SAMPLES // 8
        local = self.local_job("big_local", "parquet", bucket=os.path.join(self.root, "big"))
        self.index(local)
        with self.server(local, "127.0.0.1:0") as (address,):
            first = self.pull(address, epoch)
            second = self.pull(address, epoch, first=epoch)
        # Killed halfway, and resumed by another server.
        killed = tools.Server(config, "127.0.0.1:0", log=self.path("killed.log"))
        killed.start()
        with killed.process as process:
            killed.await_ready()
            got = self.pull(killed.addresses[0], epoch // 2)
            process.kill()
        self.assertEqual(got, self.until(first, epoch // 2))
        with self.server(config, "127.0.0.1:0") as (address,):
            got = self.pull(address, epoch - epoch // 2, first=epoch // 2)
            self.assertEqual(got, self.since(first, epoch // 2))
            asked = len(self.hub.places.requests)
            self.assertEqual(self.pull(address, epoch, first=epoch), second)
            self.assertEqual(len(self.hub.places.requests), asked)

    def until(self, lines, step):
        return [line for line in lines if line["step"] < step]

    def since(self, lines, step):
        return [line for line in lines if line["step"] >= step]


if __name__ == "__main__":
    unittest.main()
