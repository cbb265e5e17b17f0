"""Folders of Energon in S3 against the same folders on disk."""

import os
import shutil
import unittest

from tests.harness import tools
from tests.integration.storage import s3_server, s3_test


class S3EnergonTest(s3_test.S3Job):
    FORMS = ("energon",)

    def test_a_folder_gives_the_batches_of_the_local_one(self):
        self.gives_the_batches_of_local_files("energon")

    def test_energons_database_is_copied_for_the_index_alone(self):
        temporary = self.path("temporary")
        os.mkdir(temporary)
        config = self.s3_job("database", "energon")
        done = tools.run(
            "ballast-server", "index", "--config", config, env={"TMPDIR": temporary + "/none"}
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("TMPDIR", done.stderr.decode())
        done = tools.run("ballast-server", "index", "--config", config, env={"TMPDIR": temporary})
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertEqual(os.listdir(temporary), [])
        # Servers read the tars alone.
        database = os.path.join(self.bucket, "energon/.nv-meta/index.sqlite")
        os.rename(database, database + ".away")
        self.addCleanup(os.rename, database + ".away", database)
        with self.server(config, "127.0.0.1:0") as (address,):
            self.assertTrue(self.pull(address, 1))

    def test_a_metadataset_gives_the_batches_of_the_local_one(self):
        folder = os.path.join(self.bucket, "sets")
        os.mkdir(folder)
        self.addCleanup(shutil.rmtree, folder)
        with open(folder + "/blend.yaml", "w", encoding="utf-8") as file:
            file.write(
                "splits: {train: {blend: [{path: ../energon, weight: 3}, "
                "{path: more.yaml, weight: 1}]}}\n"
            )
        with open(folder + "/more.yaml", "w", encoding="utf-8") as file:
            file.write("splits: {train: {path: ../energon}}\n")
        self.sources["blend"] = (
            'format: energon, path: "{0}/sets/blend.yaml", energon: {{crude: webdataset}}'
        )
        self.addCleanup(self.sources.pop, "blend")
        self.gives_the_batches_of_local_files("blend")
        os.remove(folder + "/more.yaml")
        config = self.s3_job("torn_blend", "blend")
        message = self.error("ballast-server", "index", "--config", config)
        self.assertIn(
            "s3://bucket/sets/blend.yaml: s3://bucket/sets/more.yaml: cannot stat", message
        )
        self.s3.stop()
        message = self.error("ballast-server", "index", "--config", config)
        self.assertIn("s3://bucket/sets/blend.yaml", message)
        self.assertIn("is storage.s3.endpoint right?", message)

    def test_what_is_wrong_with_a_folder_of_energon_is_said(self):
        os.mkdir(os.path.join(self.bucket, "plain"))
        self.sources["none"] = 'format: energon, path: "{0}/plain/"'
        self.addCleanup(self.sources.pop, "none")
        config = self.s3_job("bad_none", "none")
        self.assertIn(
            "s3://bucket/plain: no folder .nv-meta",
            self.error("ballast-server", "index", "--config", config),
        )
        mine = os.path.join(self.root, "torn")
        shutil.copytree(self.bucket, mine)
        with open(mine + "/energon/.nv-meta/index.sqlite", "r+b") as file:
            file.truncate(os.path.getsize(file.name) // 2)
        config = self.s3_job("torn", "energon", bucket="torn")
        message = self.error("ballast-server", "index", "--config", config)
        self.assertIn("s3://torn/energon/.nv-meta/index.sqlite", message)
        self.assertIn("was it cut?", message)


if __name__ == "__main__":
    s3_server.skip_without_rclone()
    unittest.main()
