"""serve, ballastctl and ballast-rank over TLS, with tokens."""

import os
import signal
import socket
import ssl
import unittest

from tests.harness import tools
from tests.integration.command_line import certificates

TOKEN = "a-token-for-this-job-alone"
OTHER = "a-token-for-another-job-only"
SECURITY = """
security: {tls: {cert: server.pem, key: server.key, client_ca: ca.pem},
           tokens_file: tokens, job: receipts}
"""


class TlsTest(certificates.CertificateTest):
    """One server that listens at a Unix socket and at a TCP address with TLS."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.issue("server", "subjectAltName=IP:127.0.0.1")
        cls.issue("client", "subjectAltName=DNS:rank-0")
        for name, text in (
            ("tokens", f"{TOKEN} receipts\n{OTHER} scenes\n"),
            ("token", TOKEN + "\n"),
            ("other-token", OTHER + "\n"),
        ):
            cls.private(name, text)
        with open(cls.config, "a", encoding="utf-8") as file:
            file.write(SECURITY)
        (cls.address,) = cls.until_class_ends(cls().server(cls.config, "127.0.0.1:0"))

    def flags(self, ca="ca.pem", client="client", token="token"):
        flags = ["--server", self.address, "--tls-ca", self.at(ca)]
        if client:
            flags += ["--tls-cert", self.at(client + ".pem")]
            flags += ["--tls-key", self.at(client + ".key")]
        if token:
            flags += ["--token-file", self.at(token)]
        return flags

    def test_status_and_pull(self):
        self.assertIn("serving", self.ok("ballastctl", *self.flags(), "status"))
        arguments = ["pull", "--module", "vision", "--dp-rank", "1", "--step", "0",
                     "--steps", "2", "--json"]  # fmt: skip
        self.assertEqual(
            len(self.json_lines("ballastctl", *self.flags(), *arguments)), 2 * 2
        )

    def test_ranks(self):
        """Three streams give the same batches as one."""
        one, three = (
            [tools.without_ms(batch) for batch in self.json_lines(
                "ballast-rank", *self.flags(), "--steps", 2, "--json",
                "--streams", streams)]
            for streams in (1, 3)
        )  # fmt: skip
        self.assertEqual(len(one), 2 * 2 * (2 + 4))
        key = lambda b: (b["step"], b["micro_batch"], b["module"], b["dp_rank"])
        self.assertEqual(sorted(one, key=key), sorted(three, key=key))

    def test_who_is_refused(self):
        for flags, says in (
            (self.flags(ca="stranger.pem"), "certificate"),
            (self.flags(client=None), "certificate"),
            (self.flags(client="stranger"), "certificate"),
            (self.flags(token=None), "token"),
            (self.flags(token="other-token"), "another job"),
        ):
            with self.subTest(flags=flags):
                for program, arguments in (
                    ("ballastctl", ["status"]),
                    ("ballast-rank", ["--steps", "1"]),
                ):
                    done = tools.run(program, *flags, *arguments)
                    self.assertEqual(done.returncode, 1)
                    # gRPC's own log comes before the message.
                    message = done.stderr.decode().splitlines()[-1]
                    self.assertRegex(message, f"^{program}.*{says}")

    def test_certificates_are_renewed_at_sighup(self):
        with self.server_process(self.config, "127.0.0.1:0") as (process, (address,)):
            before = self.certificate(address)
            self.issue("renewed", "subjectAltName=IP:127.0.0.1")
            for suffix in (".pem", ".key"):
                os.replace(self.at("renewed" + suffix), self.at("server" + suffix))
            self.assertEqual(self.certificate(address), before)
            process.send_signal(signal.SIGHUP)
            log = ""
            while "reloaded" not in log:
                log = process.stderr.readline().decode()
                self.assertTrue(log, "the server has ended")
            self.assertNotIn("not reloaded", log)
            self.assertNotEqual(self.certificate(address), before)
            flags = self.flags()[2:]
            self.ok("ballastctl", "--server", address, *flags, "status")

    def certificate(self, address):
        """The certificate that the server shows now, as bytes."""
        context = ssl.create_default_context(cafile=self.at("ca.pem"))
        context.load_cert_chain(self.at("client.pem"), self.at("client.key"))
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), tools.TIMEOUT_S) as plain:
            with context.wrap_socket(plain, server_hostname=host) as secure:
                return secure.getpeercert(binary_form=True)

    def test_without_tls(self):
        self.error("ballastctl", "--server", self.address, "status")


if __name__ == "__main__":
    unittest.main()
