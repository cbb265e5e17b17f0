#!/usr/bin/env bash
# Runs the unittest module $1 of this folder. (Bazel 4.2.3's py_test needs a
# program called `python`, which Debian 12 lacks.)
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
exec python3 -m unittest -v "tests.integration.command_line.$1"
