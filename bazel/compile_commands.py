"""Makes compile_commands.json, on stdout, of the JSON of `bazel aquery` on stdin."""

import json
import os
import sys


def main():
    actions = json.load(sys.stdin).get("actions", [])
    commands = {}
    for action in actions:
        arguments = action["arguments"]
        if "-c" not in arguments:
            continue  # a header that is compiled alone
        file = arguments[arguments.index("-c") + 1]
        if not file.startswith("bazel-out/"):
            commands[file] = {"directory": os.getcwd(), "file": file, "arguments": arguments}
    json.dump([commands[file] for file in sorted(commands)], sys.stdout, indent=0)


if __name__ == "__main__":
    main()
