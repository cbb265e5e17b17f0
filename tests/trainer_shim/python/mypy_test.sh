#!/usr/bin/env bash
# The package's types are complete: mypy --strict finds nothing. Skipped where
# BALLAST_PYTHON (by default python3) has no mypy.
set -euo pipefail
python=${BALLAST_PYTHON:-python3}
if ! "$python" -m mypy --version >/dev/null 2>&1; then
  echo "SKIPPED: $python has no mypy"
  exit 0
fi
cd trainer_shim/python
exec "$python" -m mypy --strict --cache-dir "$TEST_TMPDIR/cache" ballast
