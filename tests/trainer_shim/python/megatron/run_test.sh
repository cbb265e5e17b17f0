#!/usr/bin/env bash
# Runs $1 of this folder (a unittest module), of the folder beside it (`bridge.MODULE`) or of
# the Megatron examples (a program) with the following arguments. Needs a Python with torch,
# transformers and megatron-core, and for `bridge` with Megatron-Bridge: BALLAST_PYTHON, or
# what `deploy/setup.sh --trainers` made (BALLAST_TRAINERS_PYTHON, which tests/run.sh gives).
set -euo pipefail
readonly python=${BALLAST_PYTHON:-${BALLAST_TRAINERS_PYTHON:-python3}}
name=$1
shift
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
# Threads of small models wait for each other longer than they compute.
export OMP_NUM_THREADS=1
export PYTHONPATH=$PWD:$PWD/trainer_shim/python:$PWD/trainer_shim/python/examples/megatron
export BALLAST_LIBRARY=$PWD/trainer_shim/c_api/libballast_shim.so.1

wanted="torch transformers einops megatron numpy"
[[ $name != bridge.* ]] || wanted+=" megatron.bridge megatron.training"
# shellcheck disable=SC2086
if ! missing=$("$python" -c '
import importlib.util as u, sys
found = lambda name: u.find_spec(name) is not None
print(*[n for n in sys.argv[1:] if not found(n.partition(".")[0]) or not found(n)])' $wanted) ||
  [[ -n $missing ]]; then
  echo "SKIPPED: $name: $python lacks ${missing:-a way to look for packages}." \
    "BALLAST_PYTHON names another (--test_env=BALLAST_PYTHON=...)"
  exit 0
fi
if [[ $name == bridge.* ]] && ! "$python" -c 'from typing import override' 2>/dev/null; then
  echo "SKIPPED: $name: $python is older than 3.12, which Megatron-Bridge needs."
  exit 0
fi
if [[ $name == bridge.pretrain_mimo_test ]]; then
  if [[ ! -e ${BALLAST_MEGATRON_LM:-}/examples/mimo/pretrain_mimo.py ]]; then
    echo "SKIPPED: $name: no package has Megatron-LM's examples/mimo; name a copy of its" \
      "repository (--test_env=BALLAST_MEGATRON_LM=...)"
    exit 0
  fi
  PYTHONPATH+=:$BALLAST_MEGATRON_LM
fi
[[ $name == bridge.* ]] && exec "$python" -m unittest -v "tests.trainer_shim.python.$name"
if [[ -e tests/trainer_shim/python/megatron/$name.py ]]; then
  exec "$python" -m unittest -v "tests.trainer_shim.python.megatron.$name"
fi
exec "$python" "trainer_shim/python/examples/megatron/$name.py" \
  --ballast-server server/ballast-server "$@"
