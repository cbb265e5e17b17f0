"""The page of one job beside a server of another: what the page asks for, and what comes of
servers that are dead, silent, strange or closed."""

import contextlib
import json
import socket
import threading
import time
import unittest
import urllib.error
import urllib.request

from tests.harness import tools

TOKEN = "a-token-for-both-jobs"


class CompareTest(tools.ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ok("ballast-server", "make-corpus", "--out", cls.folder, "--samples", 32,
               "--preset", "receipts")  # fmt: skip

    @contextlib.contextmanager
    def job(self, name, serve="", more="", listen="127.0.0.1:0"):
        """Runs a server; yields its address and the URL of its page."""
        config = self.write(
            name + ".yaml",
            tools.CONFIG.split("serve:")[0]
            + 'serve: {listen: ["%s"], http: "127.0.0.1:0"%s}\n%s' % (listen, serve, more),
        )
        self.ok("ballast-server", "index", "--config", config)
        with self.page_server(config) as (process, addresses, url):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield addresses[0], url

    def get(self, url, path, token=None):
        headers = {"Authorization": "Bearer " + token} if token else {}
        with urllib.request.urlopen(urllib.request.Request(url + path, headers=headers)) as answer:
            return json.load(answer)

    def compared(self, url, server=0, seconds=3600, token=None):
        path = "/api/compared?seconds=%d&server=%d" % (seconds, server)
        return self.get(url, path, token)

    def test_another_job_stands_beside_this_one(self):
        with self.job("theirs") as (address, their_url):
            with self.job("ours", ', compare_with: ["%s"]' % address) as (_, url):
                found = self.compared(url)
                self.assertEqual(found["addresses"], [address])
                self.assertEqual(found["error"], "")
                theirs = self.get(their_url, "/api/history?seconds=3600")
                for key in ("ballast_history", "server", "start", "columns"):
                    self.assertEqual(found["history"][key], theirs[key])
                same = found["history"]["points"][0]
                self.assertEqual(same, theirs["points"][0])

    def test_none_is_asked_where_none_is_named(self):
        with self.job("alone") as (_, url):
            self.assertEqual(
                self.compared(url), {"addresses": [], "history": None, "age": None, "error": ""}
            )

    def test_servers_that_are_no_peers_are_named_and_hold_nothing_back(self):
        with contextlib.ExitStack() as stack:
            silent = stack.enter_context(socket.socket())
            silent.bind(("127.0.0.1", 0))
            silent.listen(5)
            strange = stack.enter_context(socket.socket())
            strange.bind(("127.0.0.1", 0))
            strange.listen(5)

            def answer():
                with contextlib.suppress(OSError):
                    while True:
                        with strange.accept()[0] as client:
                            client.recv(1000)
                            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

            threading.Thread(target=answer, daemon=True).start()
            addresses = [
                "127.0.0.1:1",
                "127.0.0.1:%d" % silent.getsockname()[1],
                "127.0.0.1:%d" % strange.getsockname()[1],
            ]
            serve = ", compare_with: %s" % json.dumps(addresses)
            _, url = stack.enter_context(self.job("lonely", serve))
            for i in range(3):
                start = time.monotonic()
                found = self.compared(url, i)
                self.assertLess(time.monotonic() - start, 10)
                self.assertIsNone(found["history"], addresses[i])
                self.assertIn("is it up, and does it listen there?", found["error"])
            self.assertIn("has 3 entries", self.compared(url, 3)["error"])
            self.assertTrue(self.get(url, "/api/history?seconds=60")["points"])
            strange.shutdown(socket.SHUT_RDWR)

    def test_the_own_token_is_shown_to_the_other(self):
        tokens = self.write("tokens", TOKEN + "\n")
        other = self.write("others", "another-token-of-theirs\n")
        unix = "unix:" + self.path("a.sock")
        closed = "unix:" + self.path("b.sock")

        def security(path):
            return "security: {tokens_file: %s}\n" % path

        with contextlib.ExitStack() as stack:
            for name, address, path in (("open", unix, tokens), ("closed", closed, other)):
                stack.enter_context(self.job(name, "", security(path), address))
            serve = ", compare_with: %s" % json.dumps([unix, closed])
            mine = "unix:" + self.path("c.sock")
            _, url = stack.enter_context(self.job("mine", serve, security(tokens), mine))
            self.assertEqual(self.compared(url, 0, token=TOKEN)["error"], "")
            refused = self.compared(url, 1, token=TOKEN)["error"]
            self.assertIn("which it must accept", refused)
            self.assertNotIn(TOKEN, refused)
            with self.assertRaises(urllib.error.HTTPError) as unknown:
                self.compared(url)
            self.assertEqual(unknown.exception.code, 401)


if __name__ == "__main__":
    unittest.main()
