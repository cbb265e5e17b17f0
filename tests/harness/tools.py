"""Runs Ballast's programs as a user does: alone, and as jobs of servers and ranks. Python's
standard library only.

Nothing here sleeps: every wait is for a line or for a process, and ends.
"""

import contextlib
import fcntl
import glob
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zlib

# Long enough for a sanitizer's build on a busy machine.
TIMEOUT_S = 240

_PROGRAMS = {
    "ballast-server": "server/ballast-server",
    "ballastctl": "client/ballastctl/ballastctl",
    "ballast-rank": "trainer_shim/ballast_rank/ballast-rank",
}
_F_SETPIPE_SZ = 1031
_PAGE = 4096


# ---- Programs that run to their end ----


def program(name):
    """Path of a program in the test's runfiles."""
    return os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], _PROGRAMS[name])


def run(name, *arguments, stdin="", env=None):
    """Runs a program to its end, whatever its exit status."""
    environment = {k: v for k, v in os.environ.items() if k != "BALLAST_SERVER"}
    environment.update(env or {})
    return subprocess.run(
        [program(name), *map(str, arguments)],
        input=stdin.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        timeout=TIMEOUT_S,
        check=False,
    )


def ok(name, *arguments, stdin=""):
    """Standard output of a run that ends well."""
    done = run(name, *arguments, stdin=stdin)
    if done.returncode != 0:
        raise AssertionError(f"{name} {arguments} ended with {done.returncode}: "
                             + done.stderr.decode())  # fmt: skip
    return done.stdout.decode()


def json_lines(name, *arguments, stdin=""):
    return [json.loads(line) for line in ok(name, *arguments, stdin=stdin).splitlines()]


def without_ms(value):
    """The JSON value without the keys that end in _ms."""
    if isinstance(value, dict):
        return {k: without_ms(v) for k, v in value.items() if k[-3:] != "_ms"}
    if isinstance(value, list):
        return [without_ms(v) for v in value]
    return value


# ---- Data ----


def picture():
    """A grey PNG of 28x28."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * 28) * 28)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


# ---- Jobs ----


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def set_up(folder, config, samples=None, *corpus):
    """The path of a configuration in the folder, indexed. With samples, as many are drawn
    into docs-*.tar beside it first, by these arguments of make-corpus."""
    path = write(f"{folder}/job.yaml", config)
    if samples is not None:
        ok("ballast-server", "make-corpus", "--out", folder, "--samples", samples, *corpus)
    ok("ballast-server", "index", "--config", path)
    return path


def unpack(drawn, images):
    """Writes the images of a drawn dataset's tars into the folder `images`. Returns a row
    for each sample, with their names."""
    os.makedirs(images)
    rows = {}
    for path in glob.glob(drawn + "/*.tar"):
        with tarfile.open(path) as tar:
            for member in tar:
                key, _, extension = member.name.partition(".")
                data = tar.extractfile(member).read()
                row = rows.setdefault(key, {"image": []})
                if extension == "json":
                    row.update(json.loads(data))
                else:
                    row["image"].append(member.name)
                    with open(os.path.join(images, member.name), "wb") as file:
                        file.write(data)
    return list(rows.values())


@contextlib.contextmanager
def job_folder():
    """An empty folder. If the block fails, the end of its file `log` is printed."""
    # Does not use TEST_TMPDIR: the path of a Unix socket has at most 107 bytes.
    folder = tempfile.mkdtemp(prefix="ballast", dir="/tmp")
    try:
        yield folder
    except BaseException:
        if os.path.exists(f"{folder}/log"):
            with open(f"{folder}/log", "rb") as log:
                sys.stderr.write(log.read()[-20000:].decode(errors="replace"))
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def resources(process):
    """Private memory, open descriptors and threads of the process. The memory excludes the
    arena, which all processes that map it share."""
    found = {"descriptors": len(os.listdir(f"/proc/{process.pid}/fd"))}
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                found["mib"] = int(line.split()[1]) / 1024
            elif line.startswith("Threads:"):
                found["threads"] = int(line.split()[1])
    if "mib" not in found:
        raise AssertionError(f"process {process.pid} has gone")
    return found


def _start(popen, command, log, **options):
    """`popen` is subprocess.Popen, or starts the process elsewhere. `log`: a path, to which
    stderr is appended, or PIPE."""
    command = list(map(str, command))
    if log == subprocess.PIPE:
        return popen(command, stderr=log, **options)
    with open(log, "ab") as file:
        return popen(command, stderr=file, **options)


class Server:
    """A loader server, which can be killed and started again."""

    def __init__(self, config, *listen, log, popen=subprocess.Popen, **options):
        """Does not start it. `options`: of Popen."""
        listen_flags = ["--listen", *listen] if listen else []
        self._command = [program("ballast-server"), "serve", "--config", config, *listen_flags]
        self._log, self._popen, self._options = log, popen, options
        self.process = None
        self.addresses = list(listen)

    @property
    def address(self):
        return self.addresses[0]

    def start(self):
        self.process = _start(
            self._popen, self._command, self._log, stdout=subprocess.PIPE, **self._options
        )

    def await_ready(self):
        word, *addresses = self.process.stdout.readline().decode().split() or [""]
        if word != "ready":
            error = self.process.stderr.read().decode() if self.process.stderr else self._log
            raise AssertionError(f"server {self.addresses} did not start: {word!r}, {error}")
        self.addresses = addresses

    def up(self):
        """Starts it and waits until it is ready; returns itself."""
        self.start()
        self.await_ready()
        return self

    def signal(self, number):
        self.process.send_signal(number)

    def end(self, number):
        """Ends the process, if there is one, with a signal; returns its exit status."""
        if self.process is None:
            return None
        self.process.send_signal(number)
        status = self.process.wait(TIMEOUT_S)
        self.process.stdout.close()
        return status

    def kill(self):
        """As a node that loses power."""
        self.end(signal.SIGKILL)

    def drain(self):
        status = self.end(signal.SIGTERM)
        if status != 0:
            raise AssertionError(f"server {self.addresses} drained with {status}")

    def hang(self):
        """Stops the process: its sockets accept connections and answer nothing."""
        self.signal(signal.SIGSTOP)

    def wake(self):
        self.signal(signal.SIGCONT)


class Rank:
    """A rank's process, the harness being its trainer: it writes a line for each batch into
    a pipe of one page, so it is at most a page ahead of the lines that were taken. A test
    thereby decides how far each rank is when a fault comes."""

    def __init__(self, servers, *flags, log, popen=subprocess.Popen):
        self.batches = []
        self.taken = 0  # lines
        self.status = None  # the exit status, once it has ended
        self.ended_at = None
        self._flags, self._log, self._rest = flags, log, b""
        read, write_end = os.pipe()
        fcntl.fcntl(write_end, _F_SETPIPE_SZ, _PAGE)
        command = [program("ballast-rank"), "--server", ",".join(servers), "--json", *flags]
        self.process = _start(popen, command, log, stdout=write_end)
        os.close(write_end)
        self.pipe = read  # None once it has ended

    @property
    def ended(self):
        return self.pipe is None

    @property
    def error(self):
        """Why it failed; None while all is well."""
        return f"rank {self._flags} ended with {self.status}" if self.status else None

    def said(self):
        with open(self._log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def take(self, most):
        """Takes lines that are here until `most` were taken; returns how many were."""
        *lines, self._rest = self._rest.split(b"\n", max(most - self.taken, 0))
        self.taken += len(lines)
        for line in lines:
            self.on_batch(json.loads(line))
        return self.taken

    def on_batch(self, batch):
        self.batches.append(without_ms(batch))

    def read(self):
        """Reads what is there; at the end, awaits the exit status."""
        piece = os.read(self.pipe, _PAGE)
        self._rest += piece
        if not piece:
            self._end()

    def advance(self, lines):
        """Takes as many batches more; fewer at the end of the job."""
        wanted = self.taken + lines
        if not advance([self], wanted):
            raise AssertionError(f"rank {self._flags} has not come to line {wanted}")
        if self.error:
            raise AssertionError(self.error)

    def kill(self):
        """Lines in the pipe are lost."""
        self.process.kill()
        if self.pipe is not None:
            self._end()

    def _end(self):
        os.close(self.pipe)
        self.pipe = None
        self.status = self.process.wait(TIMEOUT_S)
        self.ended_at = time.monotonic()


def advance(ranks, lines=sys.maxsize, seconds=TIMEOUT_S, until_error=False):
    """Takes lines until each rank has given as many in all, or has ended; with
    `until_error`, at most until one has failed. Returns whether all this was in time."""
    deadline = time.monotonic() + seconds
    while True:
        behind = {r.pipe: r for r in ranks if r.take(lines) < lines and not r.ended}
        if not behind or (until_error and any(rank.error for rank in ranks)):
            return True
        left = max(deadline - time.monotonic(), 0)
        ready = select.select(list(behind), [], [], left)[0]
        if not ready:
            return False
        for pipe in ready:
            behind[pipe].read()


# ---- Tests ----


class ToolTest(unittest.TestCase):
    """Assertions on whole runs. `self.folder` is an empty folder for the class."""

    ok = staticmethod(ok)
    json_lines = staticmethod(json_lines)

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="ballast", dir="/tmp")
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        return write(self.path(name), text)

    def error(self, name, *arguments, stdin="", status=1):
        """Standard error of a run that fails."""
        done = run(name, *arguments, stdin=stdin)
        message = done.stderr.decode()
        self.assertEqual(done.returncode, status, message)
        self.assertRegex(message, "^" + name)
        return message

    def keys(self, value, *expected):
        """Asserts exactly these keys, in this order."""
        self.assertEqual(list(value), list(expected))

    @contextlib.contextmanager
    def server(self, config, *listen):
        """Runs a server until the block ends; yields its addresses."""
        with self.server_process(config, *listen) as (_, addresses):
            yield addresses

    @classmethod
    def until_class_ends(cls, context):
        """Enters the context, such as cls().server(...); returns what it yields."""
        value = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)
        return value

    @contextlib.contextmanager
    def server_process(self, config, *listen):
        """Like server(); also yields the process, whose log is its stderr."""
        server = Server(config, *listen, log=subprocess.PIPE)
        server.start()
        with server.process as process:
            try:
                server.await_ready()
                yield process, server.addresses
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(TIMEOUT_S), 0)
                self.assertEqual(process.stdout.read(), b"")
            finally:
                process.kill()

    @contextlib.contextmanager
    def page_server(self, config):
        """Like server_process(), with serve.http; also yields the URL of the page."""
        server = Server(config, log=subprocess.PIPE)
        server.start()
        with server.process as process:
            try:
                # Ready in the log: a server that is still starting ends with 143, not drained.
                log = ""
                while "ready at " not in log:
                    line = process.stderr.readline().decode()
                    log += line
                    self.assertTrue(line, "the server ended:\n" + log)
                server.await_ready()
                yield process, server.addresses, re.search(r"page at (https?://\S+)/,", log)[1]
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(TIMEOUT_S), 0)
            finally:
                process.kill()


# vision dp 2 and language dp 4 read groups of 2 of a micro-batch of 8. Costs
# are whole, so that sums of them are exact in any order. Small images keep
# unoptimised builds quick.
CONFIG = """
sources:
  - {name: docs, format: webdataset, path: "docs-*.tar"}
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 50176}
batch: {global: 16, micro: 8, max_tokens: 8192}
topology:
  modules: {vision: {dp: 2}, language: {dp: 4}}
balance:
  cost:
    vision: {linear: 2.0, quadratic: 1.0}
    language: {linear: 3.0, quadratic: 1.0}
serve: {listen: ["127.0.0.1:0"]}
"""
DP = {"vision": 2, "language": 4}
SAMPLES = 64
STEPS = 3


class CorpusTest(ToolTest):
    """A test with a drawn dataset of SAMPLES samples, indexed under CONFIG."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config = set_up(cls.folder, CONFIG, SAMPLES)


class TwoServersTest(CorpusTest):
    """Two servers of that dataset: one exchanges samples, one delivers direct."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        direct = CONFIG.replace("balance:", "balance:\n  delivery: direct")
        cls.direct_config = write(cls.folder + "/direct.yaml", direct)
        cls.address, cls.direct_address = (
            cls.until_class_ends(cls().server(config, f"unix:{cls.folder}/{name}.sock"))[0]
            for config, name in ((cls.config, "a"), (cls.direct_config, "b"))
        )

    def loader(self, address, module, rank, **options):
        import ballast

        options.setdefault("steps", STEPS)
        return ballast.Loader(address, module, dp_rank=rank, device="cpu", array="numpy", **options)

    def direct(self, module="language", rank=0, **options):
        """A loader of the server that delivers direct."""
        return self.loader(self.direct_address, module, rank, **options)


class JobTest(ToolTest):
    """A job in a folder of each test. Its servers and ranks log to self.log, and are killed
    at the end."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ballast", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.folder)
        self.log = self.path("log")

    def set_up_job(self, config, samples=None):
        self.config = set_up(self.folder, config, samples)

    def start_server(self, name, **options):
        """A server at a socket of that name. `options`: of Popen."""
        server = Server(self.config, f"unix:{self.path(name)}.sock", log=self.log, **options)
        self.addCleanup(server.kill)
        return server.up()

    def start_changeable(self, name, **options):
        """A server of self.text with a file and revisions of its own."""
        serve = f"serve: {{revisions: {name}.revisions, "
        self.config = self.write(f"{name}.yaml", self.text.replace("serve: {", serve))
        return self.start_server(name, **options)

    def start_rank(self, servers, *flags):
        rank = Rank([server.address for server in servers], *flags, log=self.log)
        self.addCleanup(rank.kill)
        return rank
