#!/usr/bin/env bash
# Runs $1 of this folder (a unittest module) or of the Megatron examples (a
# program) with the following arguments. Needs a Python with torch, transformers
# and megatron-core: bazel test --test_env=BALLAST_PYTHON=/path/to/python ...
set -euo pipefail
readonly python=${BALLAST_PYTHON:-python3}
readonly name=$1
shift
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
export PYTHONPATH=$PWD:$PWD/trainer_shim/python:$PWD/trainer_shim/python/examples/megatron
export BALLAST_LIBRARY=$PWD/trainer_shim/c_api/libballast_shim.so.1

if ! missing=$("$python" -c '
import importlib.util as u
wanted = ("torch", "transformers", "einops", "megatron", "numpy")
print(*[name for name in wanted if u.find_spec(name) is None])') || [[ -n $missing ]]; then
  echo "SKIPPED: $name: $python lacks ${missing:-a way to look for packages}." \
    "BALLAST_PYTHON names another (--test_env=BALLAST_PYTHON=...)"
  exit 0
fi
if [[ -e tests/trainer_shim/python/megatron/$name.py ]]; then
  exec "$python" -m unittest -v "tests.trainer_shim.python.megatron.$name"
fi
exec "$python" "trainer_shim/python/examples/megatron/$name.py" \
  --ballast-server server/ballast-server "$@"
