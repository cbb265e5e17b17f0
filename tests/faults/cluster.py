"""A job of real processes: loader servers, and one ballast-rank per rank.

The harness is the trainer. A rank's process writes one line per batch into a
pipe of one page, so it is at most a page ahead of the lines that `advance` has
taken. A test thereby decides how far each rank is when something is killed, and
nothing here sleeps: every wait is for a line, or for a process.
"""

import fcntl
import json
import os
import select
import signal
import subprocess
import time

from tests.integration.command_line import tools

_F_SETPIPE_SZ = 1031
_PAGE = 4096
_TIMEOUT_S = 120


def resident_mib(process):
    """The process's private memory: excludes the arena, which all processes that
    map it share."""
    return resources(process)["mib"]


def resources(process):
    """Private memory, open descriptors and threads of the process."""
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


class Server:
    """One loader server that can be killed and started again."""

    def __init__(self, config, address, log):
        self.address = address
        self._config = config
        self._log = log
        self._process = None
        self.start()
        self.await_ready()

    def start(self):
        self._process = subprocess.Popen(
            [tools.program("ballast-server"), "serve", "--config", self._config,
             "--listen", self.address],
            stdout=subprocess.PIPE,
            stderr=self._log,
        )  # fmt: skip

    def await_ready(self):
        line = self._process.stdout.readline().decode()
        if not line.startswith("ready"):
            raise AssertionError(f"server {self.address} did not start: {line!r}")

    def kill(self):
        """Kills the process (SIGKILL), like a node that loses power."""
        self._process.kill()
        self._process.wait(_TIMEOUT_S)
        self._process.stdout.close()

    def drain(self):
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(_TIMEOUT_S)
        self._process.stdout.close()
        if status != 0:
            raise AssertionError(f"server {self.address} drained with {status}")

    def hang(self):
        """Stops the process: its sockets accept connections and answer nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self):
        self._process.send_signal(signal.SIGCONT)

    def resident_mib(self):
        return resident_mib(self._process)

    def resources(self):
        return resources(self._process)


class Rank:
    """One rank's trainer, which restarts from its checkpoint when it dies."""

    def __init__(self, role, servers, steps, log, flags=()):
        self.role = role
        self.batches = {}  # (step, micro-batch) -> line
        self.repeated = 0
        self.restarts = -1
        self._command = [
            tools.program("ballast-rank"), "--server", ",".join(servers), "--json",
            *flags,
        ]  # fmt: skip
        self._steps = steps
        self._log = log
        self.start(0)

    def start(self, step):
        """Runs from `step` on, as from a checkpoint. Batches from there on that
        came before come again."""
        self.restarts += 1
        self.ended = step == self._steps
        self._process = None
        if self.ended:
            return
        module, rank = self.role
        role = [] if module == "all" else ["--module", module, "--dp-rank", str(rank)]
        read, write = os.pipe()
        fcntl.fcntl(write, _F_SETPIPE_SZ, _PAGE)
        self._process = subprocess.Popen(
            [*self._command, *role, "--step", str(step), "--steps",
             str(self._steps - step)],
            stdout=write,
            stderr=self._log,
        )  # fmt: skip
        os.close(write)
        self._pipe = read
        self._rest = b""

    def advance(self, lines):
        """Takes up to `lines` batches; fewer at the end of the job."""
        while lines > 0 and not self.ended:
            line = self._read_line()
            if line is None:
                self.ended = True
                status = self._process.wait(_TIMEOUT_S)
                if status != 0:
                    raise AssertionError(f"rank {self.role} ended with {status}")
            else:
                self._on_line(json.loads(line))
                lines -= 1

    def kill(self):
        """Kills the process (SIGKILL); lines in the pipe are lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_TIMEOUT_S)
            os.close(self._pipe)

    def checkpoint(self):
        """The step from which a trainer that saves after each step would resume:
        all earlier steps are complete, and no batch of a later one has come."""
        if not self.batches:
            return 0
        last = max(step for step, *_ in self.batches)
        return self._steps if self.ended else last

    def resident_mib(self):
        return resident_mib(self._process)

    def resources(self):
        return resources(self._process)

    def _on_line(self, batch):
        self._add(tools.without_ms(batch))

    def _add(self, batch):
        key = (batch["step"], batch["micro_batch"], batch["module"], batch["dp_rank"])
        if key in self.batches:
            self.repeated += 1
            if self.batches[key] != batch:
                raise AssertionError(f"{key} came twice, and not alike")
        self.batches[key] = batch

    def _read_line(self):
        deadline = time.monotonic() + _TIMEOUT_S
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if not select.select([self._pipe], [], [], max(left, 0))[0]:
                raise AssertionError(f"rank {self.role} has written nothing for "
                                     f"{_TIMEOUT_S} s")
            piece = os.read(self._pipe, _PAGE)
            if not piece:
                return None
            self._rest += piece
        line, self._rest = self._rest.split(b"\n", 1)
        return line
