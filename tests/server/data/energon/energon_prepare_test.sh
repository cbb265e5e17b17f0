#!/usr/bin/env bash
# Runs check_energon.py. Needs a Python with megatron-energon and Pillow:
# bazel test --test_env=BALLAST_PYTHON=/path/to/python ...
set -euo pipefail
readonly python=${BALLAST_PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore

if ! missing=$("$python" -c '
import importlib.util as u
wanted = ("megatron.energon", "PIL", "torch")
def found(name):
    try:
        return u.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
print(*[name for name in wanted if not found(name)])') || [[ -n $missing ]]; then
  echo "SKIPPED: energon_prepare_test: $python lacks ${missing:-a way to look for packages}." \
    "BALLAST_PYTHON names another (--test_env=BALLAST_PYTHON=...)"
  exit 0
fi
exec "$python" tests/server/data/energon/check_energon.py \
  --ballast-server tests/server/data/energon/energon_commands
