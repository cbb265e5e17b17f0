#!/usr/bin/env bash
# Measures `model.decode: device` on a machine with a GPU and no Bazel, in one
# call of at most 8 minutes (docs/gpu_tests.md, docs/measurements/images.md):
#
#   gpu_bundle/engines.sh [--out DIR] [--only NAMES] [ARGUMENTS...]
#
# `tests/gpu/run.sh build` copies this and all it needs into gpu_bundle/. The
# arguments are those of engines.py. DALI is measured if python3 can import it,
# also out of wheels in gpu_bundle/dali or $BALLAST_WHEELS; a wheel may be there in
# parts, NAME.whl.00, NAME.whl.01, …
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
bundle=$(cd "$(dirname "$0")" && pwd)
if [[ ! -e $bundle/bundle.sh || ! -e $bundle/engines.py ]]; then
  echo "engines.sh: call gpu_bundle/engines.sh; tests/gpu/run.sh build makes it" >&2
  exit 2
fi
. "$bundle/bundle.sh"
unpack_bundle "$bundle"
export LD_LIBRARY_PATH=$(library_path "$bundle")
[[ -d $bundle/shared ]] && export BALLAST_SHARED_DIR=$bundle/shared
wheels=${BALLAST_WHEELS:-$bundle/dali}
if [[ -d $wheels ]]; then
  site=$(mktemp -d /tmp/ballast_wheels.XXXXXX)
  trap 'rm -rf "$site"' EXIT
  for first in "$wheels"/*.whl.00; do
    if [[ -e $first ]]; then
      cat "${first%00}"[0-9][0-9] >"$site/$(basename "${first%.00}")"
    fi
  done
  for wheel in "$wheels"/*.whl "$site"/*.whl; do
    if [[ -e $wheel ]]; then python3 -m zipfile -e "$wheel" "$site"; fi
  done
  rm -f "$site"/*.whl
  export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || true
python3 "$bundle/engines.py" --bundle "$bundle" "$@"
