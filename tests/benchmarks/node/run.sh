#!/usr/bin/env bash
# Measures a whole node and common alternatives (docs/measurements/delivery.md).
#
#   tests/benchmarks/node/run.sh build [CORPUS]
#       builds the programs into gpu_bundle/, with the shared libraries that they
#       need; CORPUS, a folder with samples.jsonl and its images, comes along
#   tests/benchmarks/node/run.sh run ARGUMENTS...
#       on the machine to be measured, which needs GPUs and no Bazel: node.py of
#       the bundle
#
# PyTorch and Hugging Face are measured as installed for the machine's python3.
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
cd "$(dirname "$0")/../../.."

readonly bundle=gpu_bundle
readonly programs=(//server:ballast-server //client/ballastctl
  //trainer_shim/ballast_rank:ballast-rank
  //tests/benchmarks:delivery_benchmark
  //tests/benchmarks:thread_scaling_benchmark)

# All shared libraries except the C library, the driver's, NCCL and cuBLAS.
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv)|libcuda|libnvidia-[^/]*|libnccl|libcublas(Lt)?)\.so[^/]*$'
}

build() {
  local options=(--config=opt --config=cuda) bin target
  bazel build --noshow_progress "${options[@]}" "${programs[@]}"
  bin=$(bazel info --noshow_progress "${options[@]}" bazel-bin)
  rm -rf "$bundle"
  mkdir -p "$bundle"/{bin,lib,node}
  for target in server/ballast-server client/ballastctl/ballastctl \
    trainer_shim/ballast_rank/ballast-rank tests/benchmarks/delivery_benchmark \
    tests/benchmarks/thread_scaling_benchmark; do
    install -m 755 "$bin/$target" "$bundle/bin/"
  done
  libraries_of "$bundle"/bin/* | xargs install -m 644 -t "$bundle/lib"
  strip --strip-unneeded "$bundle"/bin/*
  install -m 644 tests/benchmarks/node/*.py "$bundle/node/"
  if [[ -n ${1:-} ]]; then
    mkdir "$bundle/corpus"
    cp -r "$1/." "$bundle/corpus"
    chmod -R u+w "$bundle/corpus"
  fi
  echo "$bundle: $(du -sm "$bundle" | cut -f1) MiB"
}

case ${1-} in
  build) build "${2:-}" ;;
  run) exec python3 "$bundle/node/node.py" --bundle "$bundle" "${@:2}" ;;
  *)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
