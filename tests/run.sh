#!/usr/bin/env bash
# Builds everything and runs every test that needs no GPU. Arguments go to
# `bazel test`: tests/run.sh --config=asan
#
# Tests of trainers run with the Python that `deploy/setup.sh --trainers` made; without
# one they are skipped, most of them. `tests/run.sh --trainers [ARG...]` makes it first,
# while the product compiles, and goes on without it after ten minutes.
# Tests over data outside the project need ../shared beside the checkout, or its
# path in BALLAST_SHARED_DIR; elsewhere they are skipped. tests/cluster needs root,
# network namespaces, mounts and cgroups; with BALLAST_CLUSTER_OPTIONAL=1 it is skipped
# where they cannot be had, else it fails. The last lines hold the time and
# "N passed, N failed, N skipped", in tests.
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
cd "$(dirname "$0")/.."
deploy/setup.sh --tests

made= # what the making of the trainers printed
if [[ ${1-} == --trainers ]]; then
  shift
  made=$(mktemp)
  timeout --kill-after=10 600 deploy/setup.sh --trainers >"$made" 2>&1 &
  making=$!
fi

shared=${BALLAST_SHARED_DIR:-$(realpath -m ../shared)}
if [[ -d $shared ]]; then
  set -- --test_env=BALLAST_SHARED_DIR="$shared" "$@"
else
  echo "tests/run.sh: no $shared; the tests over it are skipped"
fi

if [[ -n ${BALLAST_CLUSTER_OPTIONAL:-} ]]; then
  set -- --test_env=BALLAST_CLUSTER_OPTIONAL "$@"
fi

log=$(mktemp)
trap 'rm -f "$log" "$made"' EXIT
status=0
# Clang compiles faster; a configuration of the caller's brings its own compiler.
# Releases are compiled by GCC, so a small part shows that it still can.
if [[ $* != *--config=* ]] && command -v clang >/dev/null; then
  set -- --config=clang "$@"
  bazel build --color=no --noshow_progress //bazel:precompiled_with_messages //common:log \
    || status=$?
fi

options=(--color=no --curses=no --show_progress_rate_limit=20)
if [[ -n $made ]]; then
  # What fails here fails again below. Tests run while tests compile.
  bazel build "${options[@]}" --keep_going "$@" -- //... -//tests/... || true
  wait "$making" || echo "tests/run.sh: no trainers could be made"
  cat "$made"
fi
trainers=${TRAINERS_PATH:-${HOME:-}/.local/share/ballast/trainers}
if cmp -s deploy/trainers.txt "$trainers/trainers.txt"; then
  set -- --test_env=BALLAST_TRAINERS_PYTHON="$trainers/bin/python" "$@"
else
  echo "tests/run.sh: no trainers of deploy/trainers.txt in $trainers; most tests of" \
    "them are skipped. deploy/setup.sh --trainers installs them"
fi

bazel test "${options[@]}" "$@" //... \
  2>&1 | tee "$log" || status=$?

tests/summary.py "$log" bazel-testlogs "$SECONDS"
exit "$status"
