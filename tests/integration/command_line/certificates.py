"""Certificates and secrets for tests, by OpenSSL's program."""

import os
import subprocess

from tests.harness import tools


def openssl(*arguments):
    done = subprocess.run(
        ["openssl", *arguments], capture_output=True, timeout=tools.TIMEOUT_S
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode())


class CertificateTest(tools.CorpusTest):
    """A test with an authority `ca` and another, `stranger`. It generates its keys
    and deletes them."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for authority in ("ca", "stranger"):
            cls.make(authority, "req", "-x509", "-days", "2")

    @classmethod
    def at(cls, name):
        return os.path.join(cls.folder, name)

    @classmethod
    def private(cls, name, text):
        descriptor = os.open(cls.at(name), os.O_WRONLY | os.O_CREAT, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)

    @classmethod
    def make(cls, name, *arguments):
        openssl(
            *arguments, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-subj", f"/CN={name}", "-keyout", cls.at(name + ".key"),
            "-out", cls.at(name + ".pem"),
        )  # fmt: skip

    @classmethod
    def issue(cls, name, extension):
        cls.make(name, "req", "-new")
        os.rename(cls.at(name + ".pem"), cls.at(name + ".csr"))
        with open(cls.at(name + ".ext"), "w", encoding="utf-8") as file:
            file.write(extension + "\n")
        openssl(
            "x509", "-req", "-days", "2", "-in", cls.at(name + ".csr"),
            "-CA", cls.at("ca.pem"), "-CAkey", cls.at("ca.key"),
            "-CAcreateserial", "-extfile", cls.at(name + ".ext"),
            "-out", cls.at(name + ".pem"),
        )  # fmt: skip
