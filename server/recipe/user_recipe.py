"""A user's recipe in a separate process: its file, its limits, and what is said of its errors.

The server starts it (recipe_program.cc) with a program that runs the recipe's functions, cooker.py or
imager.py. recipe_program.h says what the frames hold. The recipe's own imports run before the box closes.
"""

import codecs
import gc
import json
import linecache
import os
import sys
import time
import traceback
import types

# Imported by Python only when they are needed.
import _strptime  # noqa: F401
import html.entities  # noqa: F401
import unicodedata  # noqa: F401

import ballast.recipe as recipe
from ballast_helper import (
    DONE,
    REFUSED,
    TooLong,
    answer,
    read_request,
    start_timer,
    stop_timer,
    to_reason,
)

for _name in (
    "ascii",
    "latin_1",
    "utf_8",
    "utf_8_sig",
    "utf_16",
    "utf_16_le",
    "cp1252",
    "unicode_escape",
):
    codecs.lookup(_name)
time.localtime()

LOAD = 2
NO_PACKAGE = 2
GAVE, DOCUMENT, LEFT_OUT, FAULT, TOO_LONG, TURNS = range(6)
MOST_FRAMES = 3
EXIT_MEMORY_LIMIT = 122  # kExitMemoryLimit
# Inputs of fewer bytes share a timer for a fiftieth of their time, since setting one takes longer than
# many a recipe.
LIGHT = 100_000


class Refusal(Exception):
    """What a recipe gave cannot be taken, and why."""


class UserRecipe:
    """A recipe and its limits. `function` and `thing`: for messages."""

    def __init__(self, settings, function, thing):
        self.path = settings["path"]
        self.name = os.path.basename(self.path)
        self.seconds = settings["seconds"]
        self.bytes_a_second = settings["bytes_a_second"]
        self.most_bytes = settings["most_bytes"]
        self.function = function
        self.thing = thing
        self.text = settings["text"]
        self.armed = None
        self.is_new = True

    def run_file(self):
        # Tracebacks show lines from here: the box has no files.
        linecache.cache[self.path] = (len(self.text), None, self.text.splitlines(True), self.path)
        module = types.ModuleType("ballast_user_recipe")
        module.__file__ = self.path
        sys.modules[module.__name__] = module
        exec(compile(self.text, self.path, "exec"), module.__dict__)

    def explain(self, error):
        """What happened, by the last lines of the traceback that are the recipe's."""
        if isinstance(error, SyntaxError):
            return f"{self.name}, line {error.lineno}: {error.msg}"
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == self.path
        ]
        where = "".join(
            f"{self.name}, line {frame.lineno}, in {frame.name}: `{frame.line}`: "
            for frame in frames[-MOST_FRAMES:]
        )
        if isinstance(error, TooLong):
            return where + f"it takes more processor time than {self.thing} may; does it end?"
        if isinstance(error, MemoryError):
            return where + f"it takes more memory than {self.thing} may"
        if isinstance(error, Refusal):
            return str(error)
        said = "".join(traceback.format_exception_only(type(error), error)).strip()
        if isinstance(error, ImportError):
            said += f"; {self.function} has no files: import it at the top of the recipe"
        elif isinstance(error, PermissionError):
            said += f"; {self.function} has no files, network or processes: read what it needs at the top of the recipe"
        return where + said

    def attempt(self, function, weight, *arguments):
        """The outcome of function(*arguments) for an input of `weight` bytes: its kind and two texts."""
        try:
            now = time.perf_counter()
            if self.armed is None or weight > LIGHT or now - self.armed > self.seconds / 50:
                start_timer(self.seconds + weight / self.bytes_a_second)
                self.armed = now
            return function(*arguments)
        except (Exception, TooLong, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            self.armed = None
            # Earlier inputs may have left too little: the server asks a new process.
            if isinstance(error, MemoryError) and not self.is_new:
                os._exit(EXIT_MEMORY_LIMIT)
            kind = TOO_LONG if isinstance(error, TooLong) else FAULT
            return kind, to_reason(self.explain(error)), b""
        finally:
            self.is_new = False


def load(program, request):
    settings = json.loads(request)
    user = UserRecipe(settings, program.FUNCTION, program.THING)
    try:
        start_timer(settings["load_seconds"])
        user.run_file()
        made = program(user)
        facts = made.facts()
        versions = [
            "python-" + sys.version.split()[0],
            *recipe._iterate_required(),
            *facts.pop("versions", ()),
        ]
        return made, DONE, json.dumps({"versions": "+".join(versions), **facts}).encode()
    except ModuleNotFoundError as error:
        return None, NO_PACKAGE, to_reason(str(error))
    except (Exception, TooLong, SystemExit) as error:
        return None, REFUSED, to_reason(user.explain(error))
    finally:
        stop_timer()


def serve(program):
    """Answers requests with `program`, of which the recipe's kLoad makes one. Never ends."""
    made = None
    while True:
        kind, request = read_request()
        if kind == LOAD:
            made, outcome, said = load(program, request)
            gc.freeze()
            answer(outcome, said)
            continue
        pieces = made.handle(kind, request)
        stop_timer()
        made.user.armed = None
        answer(DONE, *pieces)
