#!/usr/bin/env bash
# Runs the Python module $1, such as tests.cluster.faults_test, with the arguments
# after it. (Bazel 4.2.3's py_test needs a program called `python`, which Debian 12
# lacks.)
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
# `bazel run` sets neither variable.
if [[ -z ${TEST_SRCDIR:-} ]]; then
  TEST_WORKSPACE=$(basename "$PWD")
  TEST_SRCDIR=$(dirname "$PWD")
  export TEST_SRCDIR TEST_WORKSPACE
fi
exec python3 -m "$@"
