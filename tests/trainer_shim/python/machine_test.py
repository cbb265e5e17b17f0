"""Errors of a machine that a wheel cannot run on say what to do."""

import os
import stat
import subprocess
import sys
import tempfile
import unittest

from ballast import _machine, errors
from ballast._abi import _open


class MachineTest(unittest.TestCase):
    # Messages as glibc, the kernel and musl write them.
    def test_names_what_is_wrong(self):
        for message, library, wanted in (
            ("/lib/libc.so.6: version `GLIBC_2.34' not found (required by x.so)", "glibc 2.31",
             "this system has glibc 2.31"),
            ("libstdc++.so.6: version `GLIBCXX_3.4.29' not found", "glibc 2.34", "RHEL 9"),
            ("[Errno 8] Exec format error: 'ballastctl'", "glibc 2.36", "riscv64"),
            ("x.so: wrong ELF class: ELFCLASS32", "glibc 2.36", "another kind of processor"),
            ("x.so: invalid ELF header", "glibc 2.36", "another kind of processor"),
            ("[Errno 2] No such file or directory: 'ballastctl'", "", "Alpine has musl"),
            ("libgloo-1.so: cannot open shared object file", "glibc 2.36", "install the wheel"),
        ):  # fmt: skip
            self.assertIn(wanted, _machine.advice(message, "riscv64", library), message)
        self.assertEqual(_machine.advice("[Errno 13] Permission denied", "x86_64", "glibc 2.36"), "")

    def test_a_program_of_another_machine(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "ballast-server")
            with open(program, "wb") as file:
                file.write(b"\x7fELF\x02\x01 of no machine")
            os.chmod(program, stat.S_IRWXU)
            done = subprocess.run(
                [sys.executable, "-c", "from ballast import _programs; _programs.ballast_server()"],
                env={**os.environ, "BALLAST_PROGRAMS": folder,
                     "PYTHONPATH": os.pathsep.join(sys.path)},
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        self.assertEqual(done.returncode, 1)
        self.assertIn("Exec format error", done.stderr)
        self.assertIn("made for another kind of processor than this machine's", done.stderr)

    def test_a_library_of_another_machine(self):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(b"not a library, and long enough to have a header" * 10)
            file.flush()
            named, os.environ["BALLAST_LIBRARY"] = os.environ.get("BALLAST_LIBRARY"), file.name
            try:
                with self.assertRaisesRegex(errors.BallastError, "another kind of processor"):
                    _open()
            finally:
                del os.environ["BALLAST_LIBRARY"]
                if named is not None:
                    os.environ["BALLAST_LIBRARY"] = named


if __name__ == "__main__":
    unittest.main()
