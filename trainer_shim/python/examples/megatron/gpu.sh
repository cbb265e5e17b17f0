#!/usr/bin/env bash
# Trains the MimoModel of this folder on one GPU, on a machine that reaches no network.
#
#   gpu.sh prepare      where Bazel, a CUDA toolkit and pip work: makes megatron_bundle/
#                       (the programs, their libraries, megatron-core)
#   gpu.sh run FOLDER [ARG...]
#                       on the GPU machine, which has Python 3.12, torch and transformers:
#                       200 steps in bfloat16 of `off`, `direct` and `exchange`, or as
#                       many as take 6 minutes, with CUDA_DEVICE_MAX_CONNECTIONS=1.
#                       Writes FOLDER/megatron.json (train.py) and FOLDER/megatron.svg
#                       (plot_losses.py); ends within 8 minutes. ARG... are train.py's
#
# Both begin at the root of the repository.
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
self=$(realpath "$0")
readonly self
cd "$(dirname "$self")/../../../.."

readonly bundle=megatron_bundle
readonly max_mib=60
readonly examples=trainer_shim/python/examples/megatron
readonly server=server/ballast-server

prepare() {
  local options=(--config=opt --config=cuda) bin mib
  bazel build --noshow_progress "${options[@]}" //server:ballast-server \
    //trainer_shim/python:wheel
  bin=$(bazel info --noshow_progress "${options[@]}" bazel-bin)
  rm -rf "$bundle"
  mkdir -p "$bundle"/{bin,lib,wheels}
  install -m 755 "$bin/$server" "$bundle/bin/"
  # All except the C library, which must be the machine's own.
  ldd "$bundle/bin/ballast-server" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv))\.so[^/]*$' |
    xargs install -m 644 -t "$bundle/lib"
  strip --strip-unneeded "$bundle/bin/ballast-server"
  install -m 644 "$bin"/trainer_shim/python/ballast_loader-*.whl "$bundle/wheels/"
  python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 \
    --platform manylinux_2_28_x86_64 --dest "$bundle/wheels" megatron-core==0.19.2 einops
  tar -C "$bundle" -czf "$bundle/lib.tar.gz" lib
  rm -r "$bundle/lib"
  mib=$(du -sm "$bundle" | cut -f1)
  echo "$bundle: $mib MiB"
  if ((mib > max_mib)); then
    echo "gpu.sh: $bundle is above $max_mib MiB" >&2
    return 1
  fi
}

run() {
  local out wheel status=0
  mkdir -p "$1"
  out=$(realpath "$1")
  shift
  site=$(mktemp -d /tmp/ballast-XXXXXX)
  trap 'rm -rf "$site"' EXIT
  # Unpacked, not installed: nothing else of the machine's Python changes.
  for wheel in "$bundle"/wheels/*.whl; do
    python3 -m zipfile -e "$wheel" "$site"
  done
  tar -C "$site" -xzf "$bundle/lib.tar.gz"
  cat >"$site/ballast-server" <<SH
#!/usr/bin/env bash
LD_LIBRARY_PATH=$site/lib exec "$PWD/$bundle/bin/ballast-server" "\$@"
SH
  chmod +x "$site/ballast-server"
  # One process without a network: Gloo keeps to itself, NCCL needs no multicast.
  PYTHONPATH=$site PYTHONWARNINGS=ignore CUDA_DEVICE_MAX_CONNECTIONS=1 \
    GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=lo NCCL_NVLS_ENABLE=0 \
    timeout --signal=INT --kill-after=10 465 \
    python3 -X faulthandler "$examples/train.py" \
    --ballast-server "$site/ballast-server" --device cuda --seconds 390 \
    --samples 16 --max-pixels 100352 \
    --out "$out/megatron.json" "$@" || status=$?
  if [[ -e $out/megatron.json ]]; then
    python3 "$examples/plot_losses.py" "$out/megatron.json" "$out/megatron.svg"
  fi
  return "$status"
}

usage() {
  sed -n '2,/^set -/{/^set -/!s/^# \{0,1\}//p}' "$self" >&2
  exit 2
}

case ${1-} in
  prepare) prepare ;;
  run)
    shift
    (($# > 0)) || usage
    run "$@"
    ;;
  *) usage ;;
esac
