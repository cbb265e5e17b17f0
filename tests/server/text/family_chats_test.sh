#!/usr/bin/env bash
# Runs check_family_chats.py. Needs a Python with transformers, torch, torchvision
# and Pillow: bazel test --test_env=BALLAST_PYTHON=/path/to/python ...
set -euo pipefail
readonly python=${BALLAST_PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore

if ! missing=$("$python" -c '
import importlib.util as u
wanted = ("transformers", "torch", "torchvision", "PIL", "jinja2")
print(*[name for name in wanted if u.find_spec(name) is None])') || [[ -n $missing ]]; then
  echo "SKIPPED: family_chats_test: $python lacks ${missing:-a way to look for packages}." \
    "BALLAST_PYTHON names another (--test_env=BALLAST_PYTHON=...)"
  exit 0
fi
exec "$python" tests/server/text/check_family_chats.py \
  --ballast-server server/ballast-server
