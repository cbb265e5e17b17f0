#!/usr/bin/env bash
# The package's types are complete, and find a user's mistakes: mypy --strict finds nothing
# in the package, and in user_program.py each fault that its comments name. Skipped where
# BALLAST_PYTHON (by default python3) has no mypy; ./dev check runs the same.
set -euo pipefail
python=${BALLAST_PYTHON:-python3}
if ! "$python" -m mypy --version >/dev/null 2>&1; then
  echo "SKIPPED: $python has no mypy"
  exit 0
fi
cd trainer_shim/python
check=("$python" -m mypy --config-file ../../mypy.ini --cache-dir "$TEST_TMPDIR/cache")
"${check[@]}" ballast
"${check[@]}" --warn-unused-ignores --follow-imports=silent \
  ../../tests/trainer_shim/python/user_program.py
