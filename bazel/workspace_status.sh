#!/usr/bin/env bash
# The commit and whether the tree had changes, which Bazel links into programs
# built with --stamp. Prints nothing without git or a checkout, so that a build
# from a tarball of the sources works as well.
set -euo pipefail
commit=$(git rev-parse --short=12 HEAD 2>/dev/null) || exit 0
tree=clean
git diff --quiet HEAD -- 2>/dev/null || tree=modified
echo "STABLE_BALLAST_COMMIT $commit"
echo "STABLE_BALLAST_TREE $tree"
