"""Holds lists of labels and files in BUILD files in order, as buildifier has it.

    python3 bazel/build_files.py [--fix]

Prints the lists that are out of order, and exits with 1; `--fix` sorts them. A list with
anything but strings, a line each, is left alone.
"""

import re
import subprocess
import sys

LIST = re.compile(
    r"^(?P<head> +(?:srcs|hdrs|deps|data|textual_hdrs|packages|visibility) = (?:glob\()?\[\n)"
    r"(?P<lines>(?: +\"[^\"\n]+\",\n)+)",
    re.MULTILINE,
)


def key(line):
    """Files first, then targets of the package, then other packages, then repositories."""
    label = line.strip().strip('",')
    kind = 1 if label[0] == ":" else 2 if label[:2] == "//" else 3 if label[0] == "@" else 0
    return kind, label.replace(":", "!")


def ordered(lines):
    return sorted(set(lines.splitlines(keepends=True)), key=key)


def main():
    fix = sys.argv[1:] == ["--fix"]
    faults = 0
    for path in subprocess.check_output(
        ["git", "ls-files", "*BUILD.bazel"], text=True
    ).splitlines():
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for found in LIST.finditer(text):
            if found["lines"] != "".join(ordered(found["lines"])):
                faults += 1
                if not fix:
                    line = text.count("\n", 0, found.start()) + 1
                    print("%s:%d: labels are out of order, or twice" % (path, line))
        if fix:
            sorted_text = LIST.sub(lambda m: m["head"] + "".join(ordered(m["lines"])), text)
            if sorted_text != text:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(sorted_text)
    sys.exit(1 if faults and not fix else 0)


if __name__ == "__main__":
    main()
