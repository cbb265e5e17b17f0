"""`python -m ballast.server --config ballast.yaml`: a server of this installation.

Indexes if needed, then serves in the foreground until SIGTERM or Ctrl-C, and prints
`ready ADDRESS...` once it accepts. `ballast.serve` does the same in the background.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from ._programs import path_of
from ._serving import Server, serve
from .errors import BallastError

__all__ = ["Server", "serve"]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ballast.server",
        description="Indexes the data if need be, then serves them until Ctrl-C.",
        epilog="Example: python -m ballast.server --config ballast.yaml",
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="the configuration")
    parser.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="unix:/path or host:port, instead of serve.listen; port 0: any free one",
    )
    parser.add_argument("--no-index", action="store_true", help="do not look at the indexes")
    arguments = parser.parse_args()
    try:
        program = path_of("ballast-server")
    except BallastError as error:
        sys.exit(str(error))
    if not arguments.no_index:
        # Standard output is the server's: `ready ADDRESS...`.
        command = [program, "index", "--config", arguments.config]
        status = subprocess.run(command, stdout=sys.stderr, check=False).returncode
        if status != 0:
            return status
    command = [program, "serve", "--config", arguments.config]
    for address in arguments.listen:
        command += ["--listen", address]
    os.execv(program, command)


if __name__ == "__main__":
    sys.exit(main())
