#!/usr/bin/env bash
# tests/summary.sh over made output and logs.
set -euo pipefail
output=$TEST_TMPDIR/output
logs=$TEST_TMPDIR/testlogs
log() {
  mkdir -p "$logs/$1"
  cat >"$logs/$1/test.log"
}
cat >"$output" <<'END'
INFO: Build completed, 2 tests FAILED, 8 total actions
//a:plain_test                    PASSED in 0.1s
//a:cached_test         (cached) PASSED in 0.1s
//a/b:some_skipped_test           PASSED in 0.2s
//a/b:sharded_test                PASSED in 0.2s
//a/b:script_test       (cached) PASSED in 0.2s
//a/b:python_test                 PASSED in 0.2s
//a:bad_test                      FAILED in 0.1s
  /somewhere/testlogs/a/bad_test/test.log
//a:slow_test                     TIMEOUT in 60.0s
END
log a/plain_test <<<'[       OK ] A.B (0 ms), which says SKIPPED: of others'
log a/cached_test <<<'OK'
log a/bad_test <<<'SKIPPED: before it failed'
log a/b/some_skipped_test <<'END'
a.cc:5: Skipped
[  SKIPPED ] Some.Golden (0 ms)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Some.Golden
END
log a/b/sharded_test/shard_1_of_2 <<<'[       OK ] A.B (0 ms)'
log a/b/sharded_test/shard_2_of_2 <<<'[  SKIPPED ] Sharded.Half (3 ms)'
log a/b/script_test <<<'SKIPPED: tool is not installed'
log a/b/python_test <<<'OK (expected failures=1, skipped=2)'

cat >"$TEST_TMPDIR/wanted" <<'END'
skipped: //a/b:some_skipped_test: Some.Golden
skipped: //a/b:sharded_test: Sharded.Half
skipped: //a/b:script_test: tool is not installed
skipped: //a/b:python_test: OK (expected failures=1, skipped=2)
2 passed, 2 failed, 4 skipped
END
tests/summary.sh "$output" "$logs" | diff - "$TEST_TMPDIR/wanted"
