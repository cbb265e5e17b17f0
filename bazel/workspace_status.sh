#!/usr/bin/env bash
# What Bazel links into programs that are built with --stamp: the commit, and
# whether the tree had changes. Says nothing where there is no git or no
# checkout, so a build from a tarball of the sources works as well.
set -euo pipefail
commit=$(git rev-parse --short=12 HEAD 2>/dev/null) || exit 0
tree=clean
git diff --quiet HEAD -- 2>/dev/null || tree=modified
echo "STABLE_BALLAST_COMMIT $commit"
echo "STABLE_BALLAST_TREE $tree"
