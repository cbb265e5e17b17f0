"""The page and the metrics over HTTPS and IPv6, asked by clients as they are: curl,
Python, a browser."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import unittest

from tests.harness import tools
from tests.integration.command_line import certificates

TOKEN = "a-token-for-this-job-alone"


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


class HttpsTest(certificates.CertificateTest):
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
                    with self.context().wrap_socket(
                        plain, server_hostname="127.0.0.1"
                    ) as secure:
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
