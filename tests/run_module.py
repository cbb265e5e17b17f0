"""Runs the Python module that the first argument names, such as tests.cluster.faults_test,
with the arguments after it. Of a unittest module, each of Bazel's shards runs every n-th
test."""

import os
import runpy
import sys
import time
import unittest


def tests_of(suite):
    """The tests of a suite of suites, in order."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests_of(each)
        else:
            yield each


class Result(unittest.TextTestResult):
    """Names each test, and how long it took."""

    started = None  # Python 3.12.1 stops skipped tests that it has not started

    def startTest(self, test):
        self.started = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        if self.started is not None:
            self.stream.writeln("  %.1f s" % (time.monotonic() - self.started))
        self.started = None


class Program(unittest.TestProgram):
    """unittest.main for a shard."""

    def __init__(self, **options):
        runner = unittest.TextTestRunner(verbosity=2, resultclass=Result)
        super().__init__(**options, testRunner=runner)

    def createTests(self, *args, **kwargs):
        super().createTests(*args, **kwargs)
        tests = list(tests_of(self.test))
        shards = int(os.environ.get("TEST_TOTAL_SHARDS") or 1)
        if len(tests) < shards:
            sys.exit("%d tests for %d shards: lower shard_count" % (len(tests), shards))
        own = int(os.environ.get("TEST_SHARD_INDEX") or 0)
        self.test = unittest.TestSuite(tests[own::shards])


if __name__ == "__main__":
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        open(os.environ["TEST_SHARD_STATUS_FILE"], "w", encoding="utf-8").close()
    unittest.main = Program
    del sys.argv[0]
    sys.path[0] = os.getcwd()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
