#!/usr/bin/env bash
# Builds everything and runs every test that needs no GPU. Arguments go to
# `bazel test`: tests/run.sh --config=asan
#
# Tests over data that is no part of the project run where ../shared lies beside
# the checkout (or BALLAST_SHARED_DIR names it), and say so where it does not.
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/setup.sh --tests

shared=${BALLAST_SHARED_DIR:-$(realpath -m ../shared)}
if [[ -d $shared ]]; then
  set -- --test_env=BALLAST_SHARED_DIR="$shared" "$@"
else
  echo "tests/run.sh: no $shared; the tests over it are passed over"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
bazel test --color=no --curses=no --show_progress_rate_limit=20 "$@" //... \
  2>&1 | tee "$log" || status=$?

# Bazel's summary has a line a test target; the totals close the output.
passed=$(grep -cE '^//\S+ +(\(cached\) )?PASSED' "$log" || true)
failed=$(grep -cE '^//\S+ +.*(FAILED|TIMEOUT|NO STATUS)' "$log" || true)
echo "$passed passed, $failed failed"
exit "$status"
