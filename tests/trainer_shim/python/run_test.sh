#!/usr/bin/env bash
# Runs the unittest module $1 of this folder with BALLAST_PYTHON, by default python3.
# (Bazel 4.2.3's py_test asks for a program called `python`, which Debian 12 lacks.)
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$PWD:$PWD/trainer_shim/python
export BALLAST_LIBRARY=$PWD/trainer_shim/c_api/libballast_shim.so.1
exec "${BALLAST_PYTHON:-python3}" -m unittest -v "tests.trainer_shim.python.$1"
