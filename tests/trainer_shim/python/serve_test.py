"""`ballast.serve` and `python -m ballast.server` over a drawn dataset."""

import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import ballast
from tests.harness import tools


class ServeTest(tools.ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # A folder with the programs, as a wheel has one.
        cls.programs = os.path.join(cls.folder, "bin")
        os.mkdir(cls.programs)
        for name in ("ballast-server", "ballastctl"):
            os.symlink(tools.program(name), os.path.join(cls.programs, name))
        patch = mock.patch.dict(os.environ, {"BALLAST_PROGRAMS": cls.programs})
        patch.start()
        cls.addClassCleanup(patch.stop)

    def setUp(self):
        # Each test indexes anew.
        self.data = tempfile.mkdtemp(dir=self.folder)
        self.ok("ballast-server", "make-corpus", "--out", self.data, "--samples", 16)
        self.config = os.path.join(self.data, "job.yaml")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(tools.CONFIG)

    def listening(self, address):
        """Whether a server accepts at the address."""
        try:
            ballast.Connection((address,), wait_for_server=0).job()
        except ballast.Unavailable:
            return False
        return True

    def test_indexes_serves_and_stops(self):
        with ballast.serve(self.config) as address:
            self.assertTrue(glob.glob(self.data + "/.ballast/docs-*.index"))
            with ballast.Loader(address, dp_rank={"vision": 0, "language": 1}, device="cpu",
                                array="dlpack", steps=1) as loader:  # fmt: skip
                self.assertEqual(len(list(loader)), 2)
        self.assertFalse(self.listening(address))

    def test_a_server_may_be_stopped_by_hand_and_twice(self):
        listen = "unix:%s/s.sock" % self.data
        server = ballast.serve(self.config, listen=listen)
        self.assertEqual(server.address, listen)
        self.assertTrue(server.running)
        self.assertTrue(self.listening(listen))
        self.assertIn("ready at", server.log())
        server.stop()
        server.stop()
        self.assertFalse(server.running)
        self.assertFalse(self.listening(listen))

    def test_a_bad_configuration_arrives_in_the_exception(self):
        with open(self.config, "a", encoding="utf-8") as file:
            file.write("modle: {}\n")
        with self.assertRaisesRegex(
            ballast.FailedPrecondition, r"(?s)index --config .*job.yaml:\d+: modle: unknown key"
        ):
            ballast.serve(self.config)

    def test_an_error_of_the_server_arrives_in_the_exception(self):
        with self.assertRaisesRegex(ballast.FailedPrecondition, "(?s)serve .*status 1.*index"):
            ballast.serve(self.config, index=False)
        with ballast.serve(self.config, listen="127.0.0.1:0") as address:
            with self.assertRaisesRegex(ballast.FailedPrecondition, re.escape(address)):
                ballast.serve(self.config, listen=address)

    def test_a_server_that_ends_early_is_an_error(self):
        server = ballast.serve(self.config)
        self.assertIn("ready at", server.log())
        # The server is the only child of the process that watches it.
        with open("/proc/%d/task/%d/children" % ((server._process.pid,) * 2)) as file:
            (child,) = map(int, file.read().split())
        os.kill(child, signal.SIGKILL)
        server._process.wait(tools.TIMEOUT_S)
        self.assertFalse(server.running)
        with self.assertRaisesRegex(ballast.Unavailable, "(?s)SIGKILL.*ready at"):
            server.stop()

    def run_with_a_fork(self, end):
        """The address of a server whose process, with a fork that goes on, came to this end,
        and the process's status."""
        program = (
            "import ballast, os, signal, sys\n"
            "server = ballast.serve(sys.argv[1])\n"
            "fork = os.fork()\n"
            "if not fork:\n"
            "    os.close(1)\n"
            "    signal.pause()\n"
            "print(server.address, fork, flush=True)\n" + end
        )
        done = subprocess.run(
            [sys.executable, "-c", program, self.config],
            stdout=subprocess.PIPE, timeout=tools.TIMEOUT_S, check=False,
        )  # fmt: skip
        address, fork = done.stdout.decode().split()
        self.addCleanup(os.kill, int(fork), signal.SIGKILL)
        return address, done.returncode

    def test_the_server_ends_with_its_process_however_that_ends(self):
        """Forks, such as workers of a DataLoader, have copies of every descriptor."""
        address, status = self.run_with_a_fork("os.kill(os.getpid(), signal.SIGKILL)\n")
        self.assertEqual(status, -signal.SIGKILL)
        # It drains, without a client at once.
        for _ in range(1000):
            if not self.listening(address):
                return
        self.fail("the server still listens at " + address)

    def test_a_fork_does_not_keep_the_server(self):
        address, status = self.run_with_a_fork("server.stop()\n")
        self.assertEqual(status, 0)  # drained: no exception
        self.assertFalse(self.listening(address))

    def test_a_fork_does_not_end_the_server(self):
        program = (
            "import ballast, os, sys\n"
            "with ballast.serve(sys.argv[1]) as address:\n"
            "    fork = os.fork()\n"
            "    if not fork:\n"
            "        sys.exit(3)  # by the end of the block\n"
            "    assert os.WEXITSTATUS(os.waitpid(fork, 0)[1]) == 3\n"
            "    ballast.Connection((address,), wait_for_server=0).job()\n"
        )
        subprocess.run(
            [sys.executable, "-c", program, self.config], timeout=tools.TIMEOUT_S, check=True
        )

    def test_a_missing_program_says_what_to_do(self):
        with mock.patch.dict(os.environ, {"BALLAST_PROGRAMS": self.data}):
            with self.assertRaisesRegex(ballast.NotFound, "BALLAST_PROGRAMS: found no program"):
                ballast.serve(self.config)
        with mock.patch.dict(os.environ, {"BALLAST_PROGRAMS": "", "PATH": self.data}):
            with self.assertRaisesRegex(ballast.NotFound, "install Ballast's wheel"):
                ballast.serve(self.config)

    def test_the_package_has_the_programs_commands(self):
        def run(*arguments):
            return subprocess.run(
                [sys.executable, "-m", "ballast", *arguments], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, timeout=tools.TIMEOUT_S, check=False,
            )  # fmt: skip

        index = run("index", "--config", self.config)
        self.assertEqual(index.returncode, 0)
        self.assertIn(b"16 samples", index.stdout + index.stderr)
        with ballast.serve(self.config) as address:
            status = run("status", "--server", address)
            self.assertEqual(status.returncode, 0, status.stderr)
        known = run().stdout.decode()
        for command in ("init", "index", "serve", "preview", "status", "top"):
            self.assertRegex(known, r"(?m)^ +(ballast )?%s\b" % command)
        unknown = run("serv")
        self.assertEqual(unknown.returncode, 2)
        self.assertIn(b"found no command 'serv'", unknown.stderr)

    def test_the_module_indexes_and_serves_in_the_foreground(self):
        command = [sys.executable, "-m", "ballast.server", "--config", self.config]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            words = process.stdout.readline().split()
            self.assertEqual(words[0], b"ready")
            self.assertTrue(self.listening(words[1].decode()))
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(tools.TIMEOUT_S), 0)
            self.assertIn(b"16 samples", process.stderr.read())


if __name__ == "__main__":
    unittest.main()
