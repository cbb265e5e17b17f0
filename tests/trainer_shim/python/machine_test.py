"""Errors of a machine that a wheel cannot run on say what to do."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from ballast import _machine, _programs, errors
from ballast._abi import _open


class MachineTest(unittest.TestCase):
    # Messages as glibc, the kernel and musl write them.
    def test_names_what_is_wrong(self):
        for message, library, wanted in (
            ("/lib/libc.so.6: version `GLIBC_2.34' not found (required by x.so)", "glibc 2.31",
             "this system has glibc 2.31"),
            ("libstdc++.so.6: version `GLIBCXX_3.4.29' not found", "glibc 2.34",
             "that library is older than GCC 11's"),
            ("libstdc++.so.6: cannot open shared object file", "glibc 2.34", "libstdc++6"),
            ("libnccl.so.2: cannot open shared object file", "glibc 2.34", "PyTorch with CUDA"),
            ("[Errno 8] Exec format error: 'ballastctl'", "glibc 2.36", "riscv64"),
            ("x.so: wrong ELF class: ELFCLASS32", "glibc 2.36", "another kind of processor"),
            ("x.so: invalid ELF header", "glibc 2.36", "another kind of processor"),
            ("[Errno 2] No such file or directory: 'ballastctl'", "", "Alpine has musl"),
            ("libgloo-1.so: cannot open shared object file", "glibc 2.36", "install the wheel"),
        ):  # fmt: skip
            self.assertIn(wanted, _machine.advice(message, "riscv64", library), message)
        self.assertEqual(
            _machine.advice("[Errno 13] Permission denied", "x86_64", "glibc 2.36"), ""
        )

    def test_a_program_that_the_loader_refuses(self):
        with open(shutil.which("true"), "rb") as file:
            whole = file.read()
        for found, put, wanted in (
            (b"", b"", "^$"),
            (b"\0GLIBC_2.", b"\0GLIBC_9.", "' not found.*this system has glibc .*; wanted glibc"),
            (b"\0libc.so.6", b"\0libz.so.9", "^libz.so.9: cannot open .*takes it from the system"),
            (b"\0libc.so.6", b"\0libq.so.6", "^libq.so.6: cannot open .*install the wheel"),
        ):  # fmt: skip
            with tempfile.TemporaryDirectory() as folder:
                program = os.path.join(folder, "ballastctl")
                with open(program, "wb") as file:
                    file.write(whole.replace(found, put) if found else whole)
                os.chmod(program, stat.S_IRWXU)
                told = _machine.refusal(program, os.environ)
                self.assertRegex(told, wanted)
                with mock.patch.dict(os.environ, {"BALLAST_PROGRAMS": folder}):
                    if told:
                        with self.assertRaisesRegex(errors.FailedPrecondition, "cannot be run: "):
                            _programs.path_of("ballastctl")
                    else:
                        self.assertEqual(_programs.path_of("ballastctl"), program)

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
        with open(shutil.which("true"), "rb") as file:
            program = file.read()
        for content in (
            b"not a library, and long enough to have a header" * 10,
            program[:18] + b"\xf3\0" + program[20:],  # RISC-V
        ):
            with tempfile.NamedTemporaryFile(suffix=".so") as file:
                file.write(content)
                file.flush()
                with mock.patch.dict(os.environ, {"BALLAST_LIBRARY": file.name}):
                    with self.assertRaisesRegex(
                        errors.BallastError, "made for another kind of pro"
                    ):
                        _open()


if __name__ == "__main__":
    unittest.main()
