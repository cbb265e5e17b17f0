"""A job of one small dataset in a folder of its own, for tests of real processes."""

import shutil
import tempfile
import unittest

from tests.faults import cluster
from tests.integration.command_line import tools


class SmallJob(unittest.TestCase):
    """Has self.folder, self.config and self.log, until the test ends."""

    def set_up_job(self, config, samples=None):
        """Writes the configuration and indexes it.

        With samples, first draws as many into docs-*.tar beside it.
        """
        self.config = f"{self.folder}/job.yaml"
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(config)
        if samples is not None:
            self.succeed("make-corpus", "--out", self.folder, "--samples", samples)
        self.succeed("index", "--config", self.config)

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ballast", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.folder)
        self.log = open(f"{self.folder}/log", "w+", encoding="utf-8")
        self.addCleanup(self.log.close)

    def succeed(self, *arguments):
        done = tools.run("ballast-server", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr.decode())

    def server(self, name):
        """A server at a socket of that name, killed at the end."""
        server = cluster.Server(self.config, f"unix:{self.folder}/{name}.sock", self.log)
        self.addCleanup(server.kill)
        return server
