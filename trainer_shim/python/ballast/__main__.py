"""`python -m ballast COMMAND ...`: a command of this installation's programs.

    python -m ballast init data --out ballast.yaml
    python -m ballast serve --config ballast.yaml
    python -m ballast top --server 127.0.0.1:7070

`python -m ballast` alone lists the commands.
"""

from __future__ import annotations

import subprocess
import sys

from ._programs import become, path_of
from .errors import BallastError

# The first program that knows a command has it.
_PROGRAMS = ("ballast-server", "ballastctl")


def _commands(program: str) -> str:
    """The help of a program, whose lines name its commands."""
    done = subprocess.run(
        [path_of(program), "--help"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False
    )
    return done.stdout.decode("utf-8", "replace")


def main() -> int:
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    try:
        texts = {program: _commands(program) for program in _PROGRAMS}
    except BallastError as error:
        sys.exit(str(error))
    if command in ("--help", "-h", "help"):
        print((__doc__ or "") + "\n" + "\n".join(texts.values()), end="")
        return 0
    for program, text in texts.items():
        if any(line.split()[:1] == [command] for line in text.splitlines()):
            become(program)
    sys.exit("python -m ballast: found no command %r; `python -m ballast` lists them" % command)


if __name__ == "__main__":
    sys.exit(main())
