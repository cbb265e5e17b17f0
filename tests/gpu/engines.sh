#!/usr/bin/env bash
# Measures `model.decode: device` on a machine with a GPU and no Bazel, in one
# call of at most 8 minutes (docs/gpu_tests.md, docs/performance.md):
#
#   gpu_bundle/engines.sh [--out DIR] [--only NAMES] [ARGUMENTS...]
#
# `tests/gpu/run.sh build` copies this and all it needs into gpu_bundle/. The
# arguments are those of engines.py. DALI is measured if python3 can import it.
set -euo pipefail
bundle=$(cd "$(dirname "$0")" && pwd)
if [[ ! -e $bundle/bundle.sh || ! -e $bundle/engines.py ]]; then
  echo "engines.sh: call gpu_bundle/engines.sh; tests/gpu/run.sh build makes it" >&2
  exit 2
fi
. "$bundle/bundle.sh"
unpack_bundle "$bundle"
export LD_LIBRARY_PATH=$(library_path "$bundle")
[[ -d $bundle/shared ]] && export BALLAST_SHARED_DIR=$bundle/shared
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || true
exec python3 "$bundle/engines.py" --bundle "$bundle" "$@"
