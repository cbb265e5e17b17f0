"""The proxy of the cluster's nodes, between a client and a server of this test."""

import os
import socket
import subprocess
import sys
import time
import unittest

TIMEOUT_S = 30


class ProxyTest(unittest.TestCase):
    def setUp(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.server.close)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.proxy", "0", "127.0.0.1",
             str(self.server.getsockname()[1])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ),
        )  # fmt: skip
        self.addCleanup(self.end)
        word, port = self.process.stdout.readline().split()
        self.assertEqual(word, b"ready")
        self.port = int(port)

    def end(self):
        self.process.stdin.close()
        self.process.wait(TIMEOUT_S)
        self.process.stdout.close()

    def order(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        self.assertEqual(self.process.stdout.readline().decode().strip(), line)

    def connect(self):
        """Both ends of a connection through the proxy."""
        client = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)
        self.addCleanup(client.close)
        accepted, _ = self.server.accept()
        accepted.settimeout(TIMEOUT_S)
        self.addCleanup(accepted.close)
        return client, accepted

    def passes(self, sender, receiver, text=b"some bytes"):
        sender.sendall(text)
        self.assertEqual(receiver.recv(100), text)

    def is_held(self, sender, receiver):
        sender.sendall(b"held")
        receiver.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            receiver.recv(100)
        receiver.settimeout(TIMEOUT_S)

    def test_bytes_and_ends_pass_both_ways(self):
        client, server = self.connect()
        self.passes(client, server)
        self.passes(server, client)
        client.shutdown(socket.SHUT_WR)
        self.assertEqual(server.recv(100), b"")
        self.passes(server, client)

    def test_held_bytes_come_later(self):
        client, server = self.connect()
        self.order("hold")
        self.is_held(client, server)
        self.order("none")
        self.assertEqual(server.recv(100), b"held")

    def test_one_way_is_held(self):
        client, server = self.connect()
        self.order("hold-in")
        self.passes(server, client)
        self.is_held(client, server)

    def test_a_delay_delays(self):
        client, server = self.connect()
        self.order("delay 0.5")
        start = time.monotonic()
        self.passes(client, server)
        self.assertGreaterEqual(time.monotonic() - start, 0.5)

    def test_connections_are_reset(self):
        client, server = self.connect()
        self.order("reset 1")
        for end in (client, server):
            with self.assertRaises(ConnectionResetError):
                end.recv(100)
        client, server = self.connect()
        server.sendall(b"some bytes")
        with self.assertRaises(ConnectionResetError):
            client.recv(100)


if __name__ == "__main__":
    unittest.main()
