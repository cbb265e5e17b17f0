"""A loader server of this installation in the background."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from types import TracebackType
from typing import IO, List, Optional, Sequence, Tuple, Type, Union

from ._programs import path_of
from .errors import BallastError, DeadlineExceeded, FailedPrecondition, Unavailable

_DRAIN_S = 20.0  # the server drains for at most 10 seconds
_MOST_LOG = 16384  # bytes of a program's output in an exception

Path = Union[str, "os.PathLike[str]"]


class Server:
    """A loader server in the background, for notebooks, tests and small jobs.

        with ballast.serve("ballast.yaml") as address:
            with ballast.Loader(address, device="cpu") as loader:
                batch = next(loader)

    or, where a block does not fit, such as in a notebook:

        server = ballast.serve("ballast.yaml")
        loader = ballast.Loader(server.address, device="cpu")
        ...
        server.stop()

    The server is a separate process. It ends at `stop`, at the end of the `with` block,
    when the object is collected, and when this process ends in any way, whether or not
    forks of it go on: a fork does not end it, nor keep it. Ctrl-C does not reach it.
    `ballast.serve` makes objects of this class.
    """

    def __init__(
        self,
        config: Path,
        listen: Union[None, str, Sequence[str]] = None,
        index: bool = True,
        timeout: float = 600.0,
    ) -> None:
        self.config = os.path.abspath(os.fspath(config))
        #: The address at which the server listens, for `Loader(server.address)`: the
        #: first of `addresses`.
        self.address = ""
        self.addresses: List[str] = []
        program = path_of("ballast-server")
        if index:
            _run([program, "index", "--config", self.config])
        command = [program, "serve", "--config", self.config]
        for address in [listen] if isinstance(listen, str) else listen or []:
            command += ["--listen", address]
        self._command = command
        self._log: IO[bytes] = tempfile.TemporaryFile()
        # _watched.py ends the server when this process is gone.
        watched = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_watched.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", watched, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        # Ends the server if the object is dropped, and at exit.
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(self, _end, self._process, self._owner)
        try:
            self._wait_until_ready(timeout)
        except BaseException:
            self._close()
            raise

    def _wait_until_ready(self, timeout: float) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        reader = threading.Thread(target=lambda: lines.put(stdout.readline()), daemon=True)
        reader.start()
        try:
            words = lines.get(timeout=timeout).decode().split()
        except queue.Empty:
            raise DeadlineExceeded(
                "%s: not ready after %g s; its log is below. Raise the time with "
                "timeout=...\n%s" % (" ".join(self._command), timeout, self.log())
            ) from None
        if not words:
            status = self._process.wait(_DRAIN_S)
            raise FailedPrecondition(_ended(self._command, status, self.log()))
        self.addresses = words[1:]
        self.address = self.addresses[0]

    @property
    def running(self) -> bool:
        """Whether the server still runs."""
        return self._process.poll() is None

    def log(self) -> str:
        """What the server has logged, at most its last 16 KiB."""
        return "" if self._log.closed else _tail(self._log)

    def stop(self) -> None:
        """Drains and ends the server. Safe to repeat.

        Raises Unavailable, with the server's log, if the server had already ended or
        did not drain.
        """
        if self._log.closed or os.getpid() != self._owner:
            return
        ended = self._process.poll()
        status, log = self._close()
        if ended is not None or status != 0:
            raise Unavailable(_ended(self._command, status, log))

    def _close(self) -> Tuple[int, str]:
        """Ends the process; returns its status and its log. Not in a fork of its owner."""
        if os.getpid() != self._owner:
            return 0, ""
        self._finalizer()
        log = self.log()
        self._log.close()
        return int(self._process.returncode), log

    def __enter__(self) -> str:
        return self.address

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if error is None or isinstance(error, BallastError):
            # An error of a loader may come from the server's end: say both.
            self.stop()
        else:
            self._close()

    def __repr__(self) -> str:
        state = "running" if self.running else "ended"
        return "<ballast.Server %s at %s, %s>" % (self.config, self.address, state)


def serve(
    config: Path,
    *,
    listen: Union[None, str, Sequence[str]] = None,
    index: bool = True,
    timeout: float = 600.0,
) -> Server:
    """Starts a loader server in the background; indexes first if needed.

    Returns when the server is ready: a `Server`, whose `with` block begins with the
    address. Blocks while the data are indexed, once; `ballast-server index` does the
    same ahead of time, with a progress bar.

    Args:
        config: the configuration, such as the one that `ballast-server init` wrote.
        listen: `unix:/path` or `host:port`, or several, instead of `serve.listen`.
            "127.0.0.1:0" lets the system choose a port.
        index: build or refresh the indexes first. It does nothing where they are
            up to date.
        timeout: seconds until the server must be ready, without the time of indexing.

    Raises:
        NotFound: this installation has no ballast-server.
        FailedPrecondition: this machine cannot run it, the data cannot be indexed, or
            the server ended before it was ready. The message holds what was said.
        DeadlineExceeded: the server was not ready in time.
    """
    return Server(config, listen=listen, index=index, timeout=timeout)


def _run(command: List[str]) -> None:
    """Runs a program to its end; an error contains its output."""
    with tempfile.TemporaryFile() as log:
        status = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
        ).returncode
        if status != 0:
            raise FailedPrecondition(_ended(command, status, _tail(log)))


def _ended(command: Sequence[str], status: int, log: str) -> str:
    how = "ended with status %d" % status
    if status < 0:
        how = "was ended by %s" % signal.Signals(-status).name
    return "%s %s; it said:\n%s" % (" ".join(command), how, log or "(nothing)")


def _tail(log: IO[bytes]) -> str:
    # By position: the program writes through the same open file.
    size = os.fstat(log.fileno()).st_size
    begin = max(0, size - _MOST_LOG)
    return os.pread(log.fileno(), size - begin, begin).decode("utf-8", "replace").strip()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """Drains and ends the server, unless this is a fork of the process that started it."""
    if os.getpid() != owner:
        return
    assert process.stdout is not None
    process.terminate()
    try:
        process.wait(_DRAIN_S)
    except subprocess.TimeoutExpired:
        # The group: the watching process and the server.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    process.stdout.close()
