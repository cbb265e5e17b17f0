"""A server whose address somebody else has taken ends, and says so: its supervisor sees it, and
ranks go on elsewhere. It looks for itself at its address every 2 s.

    bazel test //tests/faults:lost_address_test
"""

import os
import socket
import unittest

from tests.harness import tools


class LostAddressTest(tools.JobTest):
    def test_a_server_whose_socket_was_taken_ends(self):
        self.set_up_job(tools.CONFIG, samples=24)
        server = self.start_server("a")
        path = self.path("a.sock")
        os.remove(path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(path)
            other.listen(64)
            self.assertEqual(server.process.wait(tools.TIMEOUT_S), 1)
        with open(self.log, encoding="utf-8") as log:
            said = log.read()
        self.assertIn(f"unix:{path} is lost: it accepts no connection of its own for 10 s", said)
        # What the other one has there stays.
        self.assertTrue(os.path.exists(path))


if __name__ == "__main__":
    unittest.main()
