"""Runs tests in Python.

    run_module.py MODULE [ARG...]
    run_module.py [--requires MODULES] + NAME PROGRAM [ARG...] [+ NAME PROGRAM [ARG...]]...

The first runs a module, such as tests.cluster.faults_test: of a unittest module, each of
Bazel's shards runs every n-th test. The second runs programs, modules or files, one after
another, each in a fork of this process, which has imported the MODULES (with commas between):
what takes ten seconds to import is imported once. Without one of them all are skipped. Each
shard runs every n-th program; `bazel test --test_filter=NAME` runs that one alone.
"""

import importlib
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


def run(program, *arguments):
    """Runs a module or a file as a main program, which ends this process or returns."""
    sys.argv = [program, *arguments]
    if program.endswith(".py"):
        sys.path.insert(0, os.path.dirname(program))
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


def run_forks(programs):
    """Runs each of [NAME, PROGRAM, ARG...] in a fork, and ends this process with 1 if any
    failed. tests/summary.py reads the lines that begin with "=== "."""
    failed = []
    for name, *words in programs:
        print("=== %s: %s" % (name, " ".join(words)), flush=True)
        begin = time.monotonic()
        child = os.fork()
        if not child:
            return run(*words)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        failed += [name] if code else []
        print("=== ended with %d after %.0f s" % (code, time.monotonic() - begin), flush=True)
    sys.exit("failed: " + ", ".join(failed) if failed else 0)


def share_out(words):
    """The programs of this shard, from [--requires MODULES] + NAME PROGRAM [ARG...] ..."""
    lists = [[]]
    for word in words:
        if word == "+":
            lists.append([])
        else:
            lists[-1].append(word)
    options, *programs = lists
    only = os.environ.get("TESTBRIDGE_TEST_ONLY")
    if only and only not in [name for name, *_ in programs]:
        sys.exit("no program %s here; there are %s" % (only, ", ".join(p[0] for p in programs)))
    shards = int(os.environ.pop("TEST_TOTAL_SHARDS", 1))
    shard = int(os.environ.pop("TEST_SHARD_INDEX", 0))
    programs = [p for p in programs[shard::shards] if not only or p[0] == only]
    for module in options[1].split(",") if options else []:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not (module + ".").startswith(error.name + "."):
                raise  # what is there lacks something
            for name, *_ in programs:
                print("=== %s" % name)
                print("SKIPPED: %s lacks %s; BALLAST_PYTHON names another"
                      " (--test_env=BALLAST_PYTHON=...)" % (sys.executable, module))  # fmt: skip
            sys.exit(0)
    return programs


if __name__ == "__main__":
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        open(os.environ["TEST_SHARD_STATUS_FILE"], "w", encoding="utf-8").close()
    unittest.main = Program
    sys.path[0] = os.getcwd()
    if sys.argv[1] in ("--requires", "+"):
        run_forks(share_out(sys.argv[1:]))
    else:
        run(*sys.argv[1:])
