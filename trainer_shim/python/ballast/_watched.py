"""Runs a program until standard input ends, then sends it SIGTERM.

    python -I _watched.py PROGRAM ARGUMENT...

Standard input is a pipe from the process that needs the program: the pipe ends with
that process, however that ends. Ends with the program's status. Standard library only;
imports nothing of the package, since it runs by its path.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main() -> int:
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    # Only the pipe's reader must see its end: this process writes nothing.
    os.close(1)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        process.terminate()

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
