#!/usr/bin/env bash
# Runs tests/run_module.py with the arguments by BALLAST_PYTHON, or by python3; with --trainers
# before them by BALLAST_TRAINERS_PYTHON in its place, the Python that `deploy/setup.sh
# --trainers` made. (Bazel 4.2.3's py_test needs a program called `python`, which Debian 12
# lacks.)
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
python=python3
if [[ $1 == --trainers ]]; then
  python=${BALLAST_TRAINERS_PYTHON:-python3}
  # Threads of small models wait for each other longer than they compute.
  export OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore
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
export PYTHONPATH=$PWD:$PWD/trainer_shim/python:$PWD/trainer_shim/python/examples/megatron
export BALLAST_LIBRARY=$PWD/trainer_shim/c_api/libballast_shim.so.1
exec "${BALLAST_PYTHON:-$python}" tests/run_module.py "$@"
