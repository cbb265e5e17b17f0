#!/usr/bin/env bash
# Runs the Python module $1 with the arguments after it (run_module.py) by BALLAST_PYTHON,
# or by python3; with --trainers before it by BALLAST_TRAINERS_PYTHON in its place. (Bazel
# 4.2.3's py_test needs a program called `python`, which Debian 12 lacks.)
set -euo pipefail
python=python3
if [[ $1 == --trainers ]]; then
  python=${BALLAST_TRAINERS_PYTHON:-python3}
  # Threads of small models wait for each other longer than they compute.
  export OMP_NUM_THREADS=1
  shift
fi
# `bazel run` sets neither variable.
if [[ -z ${TEST_SRCDIR:-} ]]; then
  TEST_WORKSPACE=$(basename "$PWD")
  TEST_SRCDIR=$(dirname "$PWD")
  export TEST_SRCDIR TEST_WORKSPACE
fi
export PYTHONDONTWRITEBYTECODE=1
# For tests of the package.
export PYTHONPATH=$PWD:$PWD/trainer_shim/python
export BALLAST_LIBRARY=$PWD/trainer_shim/c_api/libballast_shim.so.1
exec "${BALLAST_PYTHON:-$python}" tests/run_module.py "$@"
