"""Programs over TLS, with tokens; the page and the metrics over HTTPS and IPv6, asked
by clients as they are: curl, Python, a browser."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import unittest

from tests.harness import tools


def openssl(*arguments):
    done = subprocess.run(["openssl", *arguments], capture_output=True, timeout=tools.TIMEOUT_S)
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


TOKEN = "a-token-for-this-job-alone"
OTHER = "a-token-for-another-job-only"
SECURITY = """
security: {tls: {cert: server.pem, key: server.key, client_ca: ca.pem},
           tokens_file: tokens, job: receipts}
"""


class TlsTest(CertificateTest):
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
        self.assertEqual(len(self.json_lines("ballastctl", *self.flags(), *arguments)), 2 * 2)

    def test_a_certificate_that_ends_in_two_days(self):
        status = self.ok("ballastctl", *self.flags(), "status", "--interval", 0, "--json")
        (problem,) = json.loads(status)["problems"]
        self.assertEqual(problem["kind"], "certificate")
        self.assertTrue(problem["subject"].endswith("/server.pem"), problem)
        self.assertRegex(problem["text"], "^ends at .*Replace the certificate and its key")
        metrics = json.loads(self.ok("ballastctl", *self.flags(), "metrics", "--json"))
        self.assertEqual(metrics["ballast_problems kind=certificate"], 1)
        self.assertAlmostEqual(
            metrics["ballast_certificate_end_seconds"], time.time() + 2 * 86400, delta=3600
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

        def key(b):
            return b["step"], b["micro_batch"], b["module"], b["dp_rank"]

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


def has_ipv6():
    """Whether clients of both families reach a listener at [::], without Ballast."""
    try:
        with socket.create_server(
            ("::", 0), family=socket.AF_INET6, dualstack_ipv6=True
        ) as listener:
            for host in ("::1", "127.0.0.1"):
                address = (host, listener.getsockname()[1])
                socket.create_connection(address, timeout=10).close()
        return True
    except (OSError, ValueError):
        return False


class HttpsTest(CertificateTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        hosts = "subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost"
        cls.issue("server", hosts)
        cls.issue("renewed", hosts)
        cls.issue("client", "subjectAltName=DNS:rank-0")
        cls.private("tokens", TOKEN + "\n")

    @contextlib.contextmanager
    def page(self, http, security):
        """Runs a server with the page at `http`; yields its process and URL."""
        with open(self.config, encoding="utf-8") as file:
            text = file.read()
        listen = 'serve: {listen: ["127.0.0.1:0"]'
        self.assertIn(listen, text)
        config = self.write(
            "https.yaml",
            text.replace(listen, f'{listen}, http: "{http}"') + f"security: {security}\n",
        )
        with self.page_server(config) as (process, _, url):
            yield process, url

    def tls(self, **more):
        keys = {"cert": "server.pem", "key": "server.key", **more}
        return "{" + ", ".join(f"{k}: {v}" for k, v in keys.items()) + "}"

    def curl(self, url, *arguments):
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--max-time", "60", *arguments, url],
            capture_output=True,
            timeout=tools.TIMEOUT_S,
            check=False,
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def trusting(self, *arguments):
        return ["--cacert", self.at("ca.pem"), *arguments]

    def context(self, client=None):
        context = ssl.create_default_context(cafile=self.at("ca.pem"))
        if client:
            context.load_cert_chain(self.at(client + ".pem"), self.at(client + ".key"))
        return context

    def test_curl_and_python_trust_the_ca(self):
        with self.page("127.0.0.1:0", f"{{tls: {self.tls()}}}") as (_, url):
            self.assertTrue(url.startswith("https://127.0.0.1:"))
            status, text, error = self.curl(url + "/metrics", *self.trusting())
            self.assertEqual((status, error), (0, ""))
            self.assertIn("ballast_workers ", text)
            self.assertIn("# TYPE ballast_images_total counter", text)
            # More than a record of TLS.
            status, text, error = self.curl(url + "/", *self.trusting())
            self.assertEqual((status, error), (0, ""))
            self.assertTrue(text.endswith("</html>\n"))
            self.assertGreater(len(text), 20000)
            # A CA that has not issued it, and none.
            for flags in (["--cacert", self.at("stranger.pem")], []):
                status, text, error = self.curl(url + "/metrics", *flags)
                self.assertEqual((status, text), (60, ""), error)
            port = int(url.rsplit(":", 1)[1])
            client = http.client.HTTPSConnection(
                "localhost", port, timeout=60, context=self.context()
            )
            client.request("GET", "/api/status")
            with client.getresponse() as answer:
                self.assertEqual(answer.status, 200)
                self.assertEqual(json.load(answer)["bad_samples_total"], 0)
            client.close()

    def test_old_versions_of_tls_are_refused(self):
        with self.page("127.0.0.1:0", f"{{tls: {self.tls()}}}") as (_, url):
            for version, works in (("1.1", False), ("1.2", True), ("1.3", True)):
                status, _, _ = self.curl(
                    url + "/metrics", "--tlsv" + version, "--tls-max", version,
                    "--ciphers", "DEFAULT@SECLEVEL=0", *self.trusting(),
                )  # fmt: skip
                self.assertEqual(status == 0, works, version)

    def test_plain_http_is_told_to_use_tls(self):
        with self.page("127.0.0.1:0", f"{{tls: {self.tls()}}}") as (_, url):
            plain = url.replace("https", "http")
            status, text, _ = self.curl(plain + "/metrics", "--write-out", "%{http_code}")
            self.assertEqual(status, 0)
            self.assertIn("ask for https://", text)
            self.assertTrue(text.endswith("400"))

    def test_clients_show_a_certificate_of_the_ca(self):
        security = f"{{tls: {self.tls(client_ca='ca.pem')}}}"
        with self.page("127.0.0.1:0", security) as (_, url):
            for name, works in (("client", True), ("stranger", False), (None, False)):
                for version in ("1.2", "1.3"):
                    flags = self.trusting("--tlsv" + version, "--tls-max", version)
                    if name:
                        flags += ["--cert", self.at(name + ".pem")]
                        flags += ["--key", self.at(name + ".key")]
                    status, text, error = self.curl(url + "/metrics", *flags)
                    self.assertEqual(status == 0, works, (name, version, error))
                    self.assertEqual("ballast_workers" in text, works)

    def test_tokens_over_tls(self):
        security = f"{{tls: {self.tls()}, tokens_file: tokens}}"
        # Every machine reaches the address.
        with self.page("0.0.0.0:0", security) as (_, url):
            url = url.replace("0.0.0.0", "127.0.0.1")
            code = ["--output", "/dev/null", "--write-out", "%{http_code}"]
            for path in ("/metrics", "/api/status", "/api/history?seconds=60"):
                _, text, _ = self.curl(url + path, *self.trusting(), *code)
                self.assertEqual(text, "401")
                _, text, _ = self.curl(
                    url + path, *self.trusting(), *code,
                    "--header", "Authorization: Bearer " + TOKEN,
                )  # fmt: skip
                self.assertEqual(text, "200")
            _, text, _ = self.curl(url + "/", *self.trusting(), *code)
            self.assertEqual(text, "200")

    def test_certificates_are_renewed_at_sighup(self):
        for suffix in (".pem", ".key"):
            shutil.copy(self.at("server" + suffix), self.at("current" + suffix))
        files = self.tls(cert="current.pem", key="current.key")
        with self.page("127.0.0.1:0", f"{{tls: {files}}}") as (process, url):
            port = int(url.rsplit(":", 1)[1])

            def shown():
                address = ("127.0.0.1", port)
                with socket.create_connection(address, tools.TIMEOUT_S) as plain:
                    with self.context().wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                        return secure.getpeercert()["serialNumber"]

            before = shown()
            for suffix in (".pem", ".key"):
                os.replace(self.at("renewed" + suffix), self.at("current" + suffix))
            self.assertEqual(shown(), before)
            process.send_signal(signal.SIGHUP)
            line = ""
            while "reloaded" not in line:
                line = process.stderr.readline().decode()
                self.assertTrue(line, "the server has ended")
            self.assertNotIn("not reloaded", line)
            self.assertNotEqual(shown(), before)

    @unittest.skipUnless(has_ipv6(), "this machine has no IPv6")
    def test_ipv6(self):
        for security, flags in (
            ("{}", []),
            (f"{{tls: {self.tls()}}}", self.trusting()),
        ):
            with self.page("[::1]:0", security) as (_, url):
                self.assertRegex(url, r"^https?://\[::1\]:\d+$")
                status, text, error = self.curl(url + "/metrics", "--globoff", *flags)
                self.assertEqual((status, error), (0, ""))
                self.assertIn("ballast_workers ", text)
        # The address of all interfaces has both.
        with self.page("[::]:0", "{insecure: true}") as (_, url):
            port = int(url.rsplit(":", 1)[1])
            for host in ("::1", "127.0.0.1"):
                client = http.client.HTTPConnection(host, port, timeout=60)
                client.request("GET", "/api/status")
                with client.getresponse() as answer:
                    self.assertEqual(answer.status, 200)
                client.close()

    @unittest.skipIf(shutil.which("chromium") is None, "not installed: chromium")
    def test_a_browser_shows_it(self):
        with self.page("127.0.0.1:0", f"{{tls: {self.tls()}}}") as (_, url):
            done = subprocess.run(
                [
                    "chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
                    # It knows no CA but the system's.
                    "--ignore-certificate-errors",
                    "--user-data-dir=" + self.path("chromium"),
                    "--virtual-time-budget=8000", "--dump-dom", url + "/",
                ],
                capture_output=True,
                timeout=180,
                check=False,
            )  # fmt: skip
            shown = done.stdout.decode()
            self.assertIn(">live<", shown)
            self.assertIn("workers busy", shown)
            self.assertNotIn("Refused to", done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
