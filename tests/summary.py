#!/usr/bin/env python3
"""Prints the totals of a `bazel test`: what was skipped, programs that took longest,
then a line "N passed, N failed, N skipped".

    tests/summary.py OUTPUT TESTLOGS SECONDS

OUTPUT holds what `bazel test` printed, TESTLOGS is its bazel-testlogs, SECONDS the
time that the whole run took. GoogleTest's and unittest's programs count each of
their tests; a script counts once. A script skips with a line "SKIPPED: REASON". A
program that failed without saying which test did, or was not built, counts once.
Of a log of several programs (tests/run_module.py) each counts.
"""

import glob
import os
import re
import sys

RESULT = re.compile(
    r"^(//\S+) +(?:\(cached\) )?"
    r"(PASSED|FLAKY|FAILED TO BUILD|FAILED|TIMEOUT|NO STATUS|INCOMPLETE)"
    r"(?:.* in ([0-9.]+)s)?"
)
PROGRAM = re.compile(r"^=== (?!ended with ).*$", re.M)
ENDED = re.compile(r"^=== ended with (\S+) after ", re.M)
SHARD_TIMES = re.compile(r"^  Stats over \d+ runs: max = ([0-9.]+)s")


def gtest(text):
    """(passed, failed, skipped tests) of a GoogleTest program's log, or None."""
    if not re.search(r"^\[={10}\] .* ran\.", text, re.M):
        return None
    skipped = re.findall(r"^\[  SKIPPED \] (\S+) \(\d+ ms\)$", text, re.M)
    return (
        len(re.findall(r"^\[       OK \] .* \(\d+ ms\)$", text, re.M)),
        len(re.findall(r"^\[  FAILED  \] .* \(\d+ ms\)$", text, re.M)),
        skipped,
    )


def unittest(text):
    """The same of a Python unittest's log, or None."""
    ran = re.search(r"^Ran (\d+) tests? in ", text, re.M)
    end = re.search(r"^(?:OK|FAILED)\b(?: \((.*)\))?$", text, re.M)
    if not ran or not end:
        return None
    counts = dict(re.findall(r"([a-z ]+)=(\d+)", end[1] or ""))
    counts = {name.strip(): int(count) for name, count in counts.items()}
    failed = counts.get("failures", 0) + counts.get("errors", 0)
    skipped = counts.get("skipped", 0)
    return int(ran[1]) - failed - skipped, failed, ["%d of unittest" % skipped] * skipped


def script(text):
    """The same of any other program's log, as far as it says."""
    skipped = re.findall(r"^SKIPPED: (.*)$", text, re.M)
    return (0, 0, skipped[:1]) if skipped else (1, 0, [])


def main():
    output, testlogs, seconds = sys.argv[1:]
    passed, failed, skips, times = 0, 0, [], {}
    results = {}
    target = None
    with open(output, encoding="utf-8", errors="replace") as file:
        for line in file:
            if found := RESULT.match(line):
                target = found[1]
                results[target] = found[2]
                times[target] = float(found[3] or 0)
            elif target and (found := SHARD_TIMES.match(line)):
                times[target] = max(times[target], float(found[1]))
    for target, result in results.items():
        folder = os.path.join(testlogs, target[2:].replace(":", "/"))
        if result == "FAILED TO BUILD" or result == "NO STATUS":
            logs = []  # Logs of an earlier run may be there.
        else:
            logs = sorted(glob.glob(folder + "/test.log") + glob.glob(folder + "/shard_*/test.log"))
        target_failed = 0
        for log in logs:
            with open(log, encoding="utf-8", errors="replace") as file:
                text = file.read()
            # Either one program, or text before several.
            several = PROGRAM.split(text)[1:]
            for part in several or [text]:
                counts = gtest(part) or unittest(part) or script(part)
                ended = ENDED.search(part)
                whole = ended[1] == "0" if ended else result in ("PASSED", "FLAKY")
                if not whole and counts == script(part):
                    counts = (0, 1 if several else 0, [])
                passed += counts[0]
                target_failed += counts[1]
                skips += [(target, test) for test in counts[2]]
        if result not in ("PASSED", "FLAKY"):
            target_failed = max(target_failed, 1)
        elif not logs:
            passed += 1
        failed += target_failed

    for target, test in dict.fromkeys(skips):
        print("skipped: %s: %s" % (target, test))
    slowest = sorted(times.items(), key=lambda item: -item[1])[:5]
    print("slowest: " + ", ".join("%s %.0f s" % item for item in slowest))
    print("%d programs in %d:%02d" % (len(results), int(seconds) // 60, int(seconds) % 60))
    print("%d passed, %d failed, %d skipped" % (passed, failed, len(skips)))


if __name__ == "__main__":
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(__doc__, end="")
        sys.exit()
    main()
