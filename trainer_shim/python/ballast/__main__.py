"""The command `ballast`, also `python -m ballast`: one door to the wheel's three programs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from typing import Dict, List

from . import __version__
from ._programs import become, path_of
from .errors import BallastError

_HELP = """\
Packed, balanced batches for training vision-language models.

Usage: ballast COMMAND ...

From a folder to batches, in this order:
  ballast init data --out mine.yaml          look at a folder, write a configuration
  ballast index --config mine.yaml           read it once: image sizes, text lengths
  ballast preview --config mine.yaml         look at samples in a browser
  ballast serve --config mine.yaml --listen unix:mine.sock
                                             serve batches until Ctrl-C
  ballast status --server unix:mine.sock     ask a server how it is
  ballast top --server unix:mine.sock        watch it live

In a trainer: `import ballast`, then ballast.Loader("unix:mine.sock").
"""
# Programs with commands; the first that knows a command has it.
_PROGRAMS = {
    "ballast-server": "Over a configuration and its data (ballast-server)",
    "ballastctl": "Of a running server, with --server ADDRESS (ballastctl)",
}
_ENTRY = re.compile(r"^  ([a-z][a-z-]*)  +\S", re.M)


def _commands(program: str) -> List[str]:
    """The commands of a program, from its own help."""
    done = subprocess.run(
        [path_of(program), "--help"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False
    )
    listed = done.stdout.decode("utf-8", "replace").partition("\nCommands:\n")[2]
    return _ENTRY.findall(listed.partition("\n\n")[0])


def _help(commands: Dict[str, List[str]]) -> str:
    width = shutil.get_terminal_size().columns
    parts = [_HELP]
    for program, title in _PROGRAMS.items():
        names = textwrap.fill(
            ", ".join(commands[program]), width - 2, initial_indent="  ", subsequent_indent="  ",
            break_on_hyphens=False,
        )  # fmt: skip
        parts.append("%s:\n%s\n" % (title, names))
    parts.append(
        "In place of a trainer's ranks, to try a server (ballast-rank):\n  rank\n\n"
        "`ballast COMMAND --help` says what each does.\n"
    )
    return "\n".join(parts)


def main() -> int:
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if command == "--version":
        print("ballast", __version__)
        return 0
    if command == "rank":
        become("ballast-rank", sys.argv[2:])
    try:
        commands = {program: _commands(program) for program in _PROGRAMS}
    except BallastError as error:
        sys.exit(str(error))
    if command in ("--help", "-h", "help"):
        print(_help(commands), end="")
        return 0
    for program, known in commands.items():
        if command in known:
            become(program)
    print(
        "ballast: found no command %r; wanted one of: %s"
        % (command, ", ".join([name for known in commands.values() for name in known] + ["rank"])),
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
