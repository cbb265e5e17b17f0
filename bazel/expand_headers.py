"""Writes one header out of several, and those that they include, for cc.bzl to precompile.

    expand_headers.py OUT HEADER... -- GENERATED...

`#include "NAME"` becomes the text of NAME among GENERATED, once. A precompiled header
names each file that it was made of, and a sandbox gives a generated file another path
each time: the header that is written includes system headers only.
"""

import re
import sys


def expand(path, generated, done):
    """The lines of `path`; `done` has the generated files that were written before."""
    lines = []
    with open(path, encoding="utf-8") as header:
        for line in header:
            name = re.match(r'#include "(.*)"', line)
            if not name or name[1] not in generated:
                lines.append(line)
            elif name[1] not in done:
                done.add(name[1])
                lines += expand(generated[name[1]], generated, done)
    return lines


def main(out, headers, generated):
    names = {path.partition("/bin/")[2]: path for path in generated}
    done = set()
    with open(out, "w", encoding="utf-8") as joined:
        for header in headers:
            joined.writelines(expand(header, names, done))


if __name__ == "__main__":
    split = sys.argv.index("--")
    main(sys.argv[1], sys.argv[2:split], sys.argv[split + 1 :])
