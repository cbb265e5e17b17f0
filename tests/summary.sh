#!/usr/bin/env bash
# Prints the totals of a `bazel test`: each skipped test, then a line
# "N passed, N failed, N skipped". A target counts once: as failed, as skipped
# when it passed without running all of its tests, else as passed.
#
#   tests/summary.sh OUTPUT TESTLOGS
#
# OUTPUT holds what `bazel test` printed, TESTLOGS is its bazel-testlogs. A test
# is skipped by GoogleTest, by Python's unittest, or by a script that prints a
# line "SKIPPED: REASON".
set -euo pipefail
output=$1
testlogs=$2

passed=0
skipped=0
failed=$(grep -cE '^//\S+ +.*(FAILED|TIMEOUT|NO STATUS)' "$output" || true)
while read -r target; do
  path=${target#//}
  found=$(find -L "$testlogs/${path/://}" -name test.log 2>/dev/null | sort |
    xargs -r grep -hE '^(SKIPPED:|\[  SKIPPED \] .*\([0-9]+ ms\)|OK \(.*skipped=[0-9]+)' |
    sed 's/^SKIPPED: //; s/^\[  SKIPPED \] //; s/ ([0-9]* ms)$//' || true)
  if [[ -z $found ]]; then
    passed=$((passed + 1))
    continue
  fi
  skipped=$((skipped + 1))
  while read -r test; do echo "skipped: $target: $test"; done <<<"$found"
done < <(sed -nE 's!^(//\S+) +(\(cached\) )?PASSED.*!\1!p' "$output")
echo "$passed passed, $failed failed, $skipped skipped"
