#!/usr/bin/env bash
# Trains the MimoModel of this folder on one GPU, on a machine that reaches no network.
#
#   gpu.sh prepare      where Bazel, a CUDA toolkit and pip work: makes megatron_bundle/
#                       (the programs, their libraries, megatron-core)
#   gpu.sh run [ARG...] on the GPU machine, which has torch and transformers: 200 steps
#                       in bfloat16 of `off`, `direct` and `exchange`, with
#                       CUDA_DEVICE_MAX_CONNECTIONS=1; ARG... are train.py's. Writes
#                       megatron_bundle/training.json, or what --out names
#
# Both begin at the root of the repository.
set -euo pipefail
self=$(realpath "$0")
readonly self
cd "$(dirname "$self")/../../../.."

readonly bundle=megatron_bundle
readonly max_mib=64
readonly server=server/ballast-server

prepare() {
  local options=(--config=opt --config=cuda) bin mib
  bazel build --noshow_progress "${options[@]}" //server:ballast-server \
    //trainer_shim/python:wheel
  bin=$(bazel info --noshow_progress "${options[@]}" bazel-bin)
  rm -rf "$bundle"
  mkdir -p "$bundle"/{bin,lib,wheels}
  install -m 755 "$bin/$server" "$bundle/bin/"
  strip --strip-unneeded "$bundle/bin/ballast-server"
  # All except the C library, which must be the machine's own.
  ldd "$bundle/bin/ballast-server" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv))\.so[^/]*$' |
    xargs install -m 644 -t "$bundle/lib"
  install -m 644 "$bin"/trainer_shim/python/ballast-*.whl "$bundle/wheels/"
  python3 -m pip download --quiet --no-deps --ignore-requires-python \
    --dest "$bundle/wheels" megatron-core==0.19.2 einops
  mib=$(du -sm "$bundle" | cut -f1)
  echo "$bundle: $mib MiB"
  if ((mib > max_mib)); then
    echo "gpu.sh: $bundle is above $max_mib MiB" >&2
    return 1
  fi
}

run() {
  local site wheel
  site=$(mktemp -d /tmp/ballast-XXXXXX)
  trap 'rm -rf "$site"' EXIT
  # Pure Python except for unused helpers, so the Python version of the wheel
  # does not matter.
  for wheel in "$bundle"/wheels/*.whl; do
    python3 -m zipfile -e "$wheel" "$site"
  done
  cat >"$site/ballast-server" <<SH
#!/usr/bin/env bash
LD_LIBRARY_PATH=$PWD/$bundle/lib exec "$PWD/$bundle/bin/ballast-server" "\$@"
SH
  chmod +x "$site/ballast-server"
  PYTHONPATH=$site PYTHONWARNINGS=ignore CUDA_DEVICE_MAX_CONNECTIONS=1 \
    python3 trainer_shim/python/examples/megatron/train.py \
    --ballast-server "$site/ballast-server" --device cuda \
    --out "$bundle/training.json" "$@"
}

case ${1-} in
  prepare) prepare ;;
  run)
    shift
    run "$@"
    ;;
  *)
    sed -n '2,/^set -/{/^set -/!s/^# \{0,1\}//p}' "$self" >&2
    exit 2
    ;;
esac
