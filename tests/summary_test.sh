#!/usr/bin/env bash
# tests/summary.py over made output and logs.
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
  Stats over 2 runs: max = 7.4s, min = 0.1s, avg = 0.1s, dev = 0.0s
//a/b:script_test       (cached) PASSED in 0.2s
//a/b:python_test                 PASSED in 0.2s
//a/b:unbuilt_test                FAILED TO BUILD
//a:bad_test                      FAILED in 0.1s
  /somewhere/testlogs/a/bad_test/test.log
//a:bad_script                    FAILED in 0.1s
//a:slow_test                     TIMEOUT in 60.0s
//a:several_test                  FAILED in 0.2s
END
log a/plain_test <<'END'
[       OK ] A.B (0 ms)
[       OK ] A.C (0 ms), which says SKIPPED: of others
[       OK ] A.D (12 ms)
[==========] 3 tests from 1 test suite ran. (1 ms total)
END
log a/cached_test <<<'OK'
log a/b/unbuilt_test <<<'SKIPPED: when it was last built'
log a/bad_script <<<'SKIPPED: before it failed'
log a/bad_test <<'END'
[       OK ] A.B (0 ms)
[  FAILED  ] A.C (0 ms)
[  FAILED  ] A.D (0 ms)
[==========] 3 tests from 1 test suite ran. (1 ms total)
[  FAILED  ] 2 tests, listed below:
[  FAILED  ] A.C
[  FAILED  ] A.D
END
log a/b/some_skipped_test <<'END'
a.cc:5: Skipped
[  SKIPPED ] Some.Golden (0 ms)
[==========] 1 test from 1 test suite ran. (1 ms total)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Some.Golden
END
log a/b/sharded_test/shard_1_of_2 <<'END'
[       OK ] A.B (0 ms)
[==========] 1 test from 1 test suite ran. (1 ms total)
END
log a/b/sharded_test/shard_2_of_2 <<'END'
[  SKIPPED ] Sharded.Half (3 ms)
[==========] 1 test from 1 test suite ran. (1 ms total)
END
log a/b/script_test <<<'SKIPPED: tool is not installed'
log a/b/python_test <<'END'
Ran 7 tests in 0.1s

OK (expected failures=1, skipped=2)
END
log a/several_test <<'END'
=== one: a.one
Ran 3 tests in 0.1s

OK
=== ended with 0 after 1 s
=== two: a.two --fast
=== ended with 0 after 1 s
=== three: a.three
Ran 2 tests in 0.1s

FAILED (failures=1)
=== ended with 1 after 1 s
=== four: a.four
=== ended with -9 after 1 s
=== five: a.five
SKIPPED: five is not here
=== ended with 0 after 1 s
failed: three, four
END

# Passed: two of plain_test (one line is not a result), cached_test, A.B of bad_test
# and of sharded_test, five of Python, five of several_test. Failed: two of bad_test and of
# several_test, one each of the script, the program that was not built and the one that ran
# out of time.
cat >"$TEST_TMPDIR/wanted" <<'END'
skipped: //a/b:some_skipped_test: Some.Golden
skipped: //a/b:sharded_test: Sharded.Half
skipped: //a/b:script_test: tool is not installed
skipped: //a/b:python_test: 2 of unittest
skipped: //a:several_test: five is not here
slowest: //a:slow_test 60 s, //a/b:sharded_test 7 s
11 programs in 12:05
15 passed, 7 failed, 6 skipped
END
tests/summary.py "$output" "$logs" 725 | sed 's/^\(slowest: [^,]*, [^,]*\),.*/\1/' |
  diff - "$TEST_TMPDIR/wanted"
