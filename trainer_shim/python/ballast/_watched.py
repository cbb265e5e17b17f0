"""Runs a program until the process that needs it is gone, then sends it SIGTERM.

    python -I _watched.py PID PROGRAM ARGUMENT...

PID is the parent of this process. The kernel tells when it has ended, however that was;
descriptors that its own forks have copied do not matter. SIGTERM is passed on. Ends with the
program's status. Standard library only; imports nothing of the package, since it runs by
its path.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any

_LOOK_S = 0.5  # how often to look for the parent where the kernel does not tell


def wait_for_end(parent: int) -> None:
    """Returns once the parent has ended."""
    try:
        descriptor = os.pidfd_open(parent)
    except (AttributeError, OSError):  # Linux before 5.3, a sandbox, or it has ended
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        return
    # If another process had the number by now, this one would have another parent.
    if os.getppid() == parent:
        select.select([descriptor], [], [])


def main() -> int:
    parent = int(sys.argv[1])
    ends = threading.Event()  # before the program has started

    def end(*_: Any) -> None:
        ends.set()
        if process is not None:
            process.terminate()

    process = None
    signal.signal(signal.SIGTERM, end)
    process = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)
    if ends.is_set():
        process.terminate()
    # Only the program may hold the caller's pipe: this process writes nothing.
    os.close(1)

    def watch() -> None:
        wait_for_end(parent)
        end()

    threading.Thread(target=watch, daemon=True).start()
    status = process.wait()
    if status < 0:
        # Ends like the program, so that the caller sees the signal.
        if status != -signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main())
