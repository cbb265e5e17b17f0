#!/usr/bin/env bash
# What one GPU cannot show: runs on a machine with several GPUs, which may lack Bazel,
# our libraries and a network (docs/gpu_tests.md).
#
#   tests/gpu/several.sh build   where Bazel, a CUDA toolkit and a Python 3.12 with pip
#                                work: makes several_bundle/ (the programs, their
#                                libraries, the wheel, Megatron, a corpus), at most 60 MiB.
#                                The parts tests and bench need tests/gpu/run.sh build
#   tests/gpu/several.sh run OUT [PART...]
#                                on the machine with GPUs, as root: all parts, or
#                                those named, in this order:
#       tests     tests/gpu/run.sh run                             up to 460 s
#       bench     tests/gpu/run.sh bench                           up to 300 s
#       megatron  colocated ranks with Megatron's own data parallelism,
#                 1F1B, and dynamic context parallelism over NCCL  up to 300 s
#       bridge    Megatron-Bridge's own training loop              up to 300 s
#       nodes     two servers in two network namespaces, images
#                 and audio                                        up to 150 s
#       node      tests/benchmarks/node, decode host and device    up to 240 s
#       training  a training step under FSDP2, by way of loading   up to 280 s
#       table     200 iterations of each way of loading, in the form
#                 of Megatron-Bridge #4608's table                 up to 540 s
#
# Each part writes OUT/PART.json or OUT/PART.log and stops none of the others; one that
# is cut off has failed. The last line says which have. $SEVERAL_SECONDS, by default 540,
# bounds the whole: parts that are left then do not run, and are named.
set -uo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
self=$(realpath "$0")
readonly self
cd "$(dirname "$self")/../.." || exit 1

readonly bundle=several_bundle
readonly max_mib=60
readonly parts=(nccl text decoding feeders tests bench megatron bridge nodes node training table)
readonly programs=(//server:ballast-server //client/ballastctl
  //trainer_shim/ballast_rank:ballast-rank
  //tests/benchmarks:delivery_benchmark
  //tests/benchmarks:thread_scaling_benchmark)
readonly wheel=//trainer_shim/python:library_wheel
readonly examples=trainer_shim/python/examples
# Of deploy/trainers.txt, what machines with GPUs lack.
readonly packages='antlr4-python3-runtime|datasets|dill|einops|megatron-bridge|megatron-core|multiprocess|omegaconf'
# Where a clone of Megatron-Bridge is: the part feeders takes its reordering buffer from
# there (energon_feed.py names repository, commit and files), or leaves it out.
readonly bridge_source=${BRIDGE_SOURCE-}

# NVLink multicast can put a shared host's GPUs out of service.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1

# As in tests/gpu/run.sh.
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv)|libcuda|libnvidia-[^/]*|libnccl|libcublas(Lt)?)\.so[^/]*$'
}

build() {
  set -e
  local options bin target path mib python
  read -ra options <<<"${BALLAST_BUILD_OPTIONS:---config=opt --config=cuda --config=noarrow}"
  bazel build --noshow_progress "${options[@]}" "${programs[@]}" "$wheel"
  bin=$(bazel info --noshow_progress "${options[@]}" bazel-bin)
  rm -rf "$bundle"
  mkdir -p "$bundle"/{bin,lib,wheels,python,corpus,node}
  for target in "${programs[@]}"; do
    path=${target#//}
    [[ $path == *:* ]] || path=$path:${path##*/}
    install -m 755 "$bin/${path/://}" "$bundle/bin/"
  done
  # For network namespaces, which not every image can make.
  if path=$(command -v ip); then install -m 755 "$path" "$bundle/bin/"; fi
  # The server holds the program that decodes audio.
  libraries_of "$bundle"/bin/* "$bin/server/media/audio/decoder/sndfile" |
    xargs install -m 644 -t "$bundle/lib"
  strip --strip-unneeded "$bundle"/bin/*
  deploy/wheel.sh --out "$bundle/wheels" \
    --wheel "$bin"/trainer_shim/python/library_wheel/ballast_loader-*.whl
  python=${BALLAST_TRAINERS_PYTHON:-$HOME/.local/share/ballast/trainers/bin/python}
  "$python" -m pip wheel --quiet --no-deps --require-hashes --wheel-dir "$bundle/wheels" \
    --requirement <(grep -E "^($packages)==" deploy/trainers.txt)
  "$python" -m pip download --quiet --no-deps --only-binary=:all: --require-hashes \
    --dest "$bundle/wheels" --requirement tests/gpu/energon.txt
  if [[ -n $bridge_source ]]; then
    mkdir "$bundle/buffer"
    "$python" - "$bridge_source" "$bundle/buffer" <<'END'
import ast, subprocess, sys
named = {node.targets[0].id: ast.literal_eval(node.value)
         for node in ast.parse(open("tests/gpu/energon_feed.py").read()).body
         if isinstance(node, ast.Assign) and node.targets[0].id in ("COMMIT", "FILES")}
for path in named["FILES"]:
    with open("%s/%s.py" % (sys.argv[2], path.replace("/", ".")), "wb") as file:
        subprocess.run(["git", "-C", sys.argv[1], "show",
                        "%s:src/megatron/bridge/%s.py" % (named["COMMIT"], path)],
                       check=True, stdout=file)
END
  fi
  install -m 644 tests/server/text/testdata/chat.tokenizer.json "$bundle/python/"
  install -m 644 tests/benchmarks/node/*.py "$bundle/node/"
  if [[ -d ${BALLAST_SHARED_DIR-}/corpus ]]; then
    cp -r "$BALLAST_SHARED_DIR/corpus/." "$bundle/corpus"
    chmod -R u+w "$bundle/corpus"
  fi
  tar -C "$bundle" -I "xz -6 -T2" -cf "$bundle/programs.tar.xz" bin lib
  rm -r "$bundle/bin" "$bundle/lib"
  mib=$(du -sm "$bundle" | cut -f1)
  echo "$bundle: $mib MiB"
  ((mib <= max_mib)) || { echo "several.sh: above $max_mib MiB" >&2; return 1; }
}

# Unpacks the bundle, once. Sets PYTHONPATH, and the path of the programs' libraries for
# `server` and the like below; NCCL and CUDA are the machine's own, as PyTorch has them.
unpack() {
  local each
  if [[ -f $bundle/programs.tar.xz ]]; then
    python3 -m tarfile -e "$bundle/programs.tar.xz" "$bundle" &&
      rm "$bundle/programs.tar.xz"
  fi
  site=$bundle/site
  if [[ ! -d $site ]]; then
    mkdir "$site"
    for each in "$bundle"/wheels/*.whl; do python3 -m zipfile -e "$each" "$site"; done
  fi
  libraries=$PWD/$bundle/lib:${CUDA_PATH:-/usr/local/cuda}/lib64:/usr/local/nvidia/lib64
  for each in $(python3 -c '
import glob, site, sys
for root in dict.fromkeys(sys.path + site.getsitepackages()):
    print(*glob.glob(root + "/nvidia/*/lib"), sep="\n")' 2>/dev/null); do
    libraries+=:$each
  done
  # Wrapped, so that the libraries reach our programs and not the machine's Python.
  wrapped=$bundle/wrapped
  mkdir -p "$wrapped"
  for each in "$bundle"/bin/*; do
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$libraries" "$PWD/$each" \
      >"$wrapped/${each##*/}"
    chmod +x "$wrapped/${each##*/}"
  done
  PYTHONPATH=$PWD/$site:$PWD/$examples:$PWD/$examples/megatron
  export PYTHONPATH
}

gpus() {
  if [[ -n ${SEVERAL_GPUS-} ]]; then
    echo "$SEVERAL_GPUS" # without GPUs: for trying the script out
  else
    nvidia-smi --list-gpus | wc -l
  fi
}
device() { [[ -n ${SEVERAL_GPUS-} ]] && echo cpu || echo cuda; }
backend() { [[ -n ${SEVERAL_GPUS-} ]] && echo host || echo cuda; }

part_tests() { tests/gpu/run.sh run; }
part_bench() { tests/gpu/run.sh bench; }

part_megatron() {
  local status=0
  CUDA_DEVICE_MAX_CONNECTIONS=1 python3 "$examples/megatron/data_parallel.py" \
    --ballast-server "$wrapped/ballast-server" --device "$(device)" \
    --world "$(gpus)" --steps "${1:-8}" --out "$out/megatron.json" || status=1
  local stages=$(($(gpus) > 2 ? 2 : 1)) # of four layers
  for connections in 8 1; do
    CUDA_DEVICE_MAX_CONNECTIONS=$connections python3 "$examples/megatron/pipeline.py" \
      --ballast-server "$wrapped/ballast-server" --device "$(device)" \
      --stages "$stages" --noise "${2:-2e-2}" || status=1
  done
  if (($(gpus) >= 4)); then
    python3 "$examples/megatron/pipeline.py" --vision-ranks 2 --ranks 2 --stages 1 \
      --ballast-server "$wrapped/ballast-server" --device "$(device)" \
      --noise "${2:-2e-2}" || status=1
    python3 "$examples/megatron/dynamic.py" --ballast-server "$wrapped/ballast-server" \
      --device "$(device)" || status=1
  fi
  return $status
}

# Again with Transformer Engine where it is installed.
part_bridge() {
  local size=() status=0 program=(python3 tests/gpu/several_bridge.py
    --ballast-server "$wrapped/ballast-server" --world "$(gpus)" --device "$(device)")
  if [[ $(device) == cpu ]]; then
    size=(--steps 3 --warmup 1 --samples 64 --hidden 64 --layers 2 --max-pixels 50176)
  fi
  if (($(gpus) == 1)); then size+=(--ways off); fi # a rank alone exchanges nothing
  "${program[@]}" "${size[@]}" --out "$out/bridge.json" || status=1
  if python3 -c 'import transformer_engine.pytorch' 2>/dev/null; then
    "${program[@]}" "${size[@]}" --transformer-engine --out "$out/bridge-engine.json" || status=1
  fi
  return $status
}

part_feeders() {
  local size=() ways=energon,buffer,off,direct,exchange,hybrid,memory
  [[ -d $bundle/buffer ]] || ways=${ways/buffer,/}
  if [[ $(device) == cpu ]]; then
    size=(--turn 4 --drop 1 --rounds 1 --workers 1 --samples 64 --hidden 64 --layers 2
      --max-pixels 50176)
  fi
  python3 tests/gpu/several_feeders.py --ballast-server "$wrapped/ballast-server" \
    --world "$(gpus)" --device "$(device)" --buffer "$bundle/buffer" --ways "$ways" \
    "${size[@]}" --out "$out/feeders.json" "$@"
}

part_nccl() {
  python3 tests/gpu/nccl_memory.py --world "$(gpus)" --out "$out/nccl_memory.json"
}

part_text() {
  python3 tests/gpu/several_text.py --ballast-server "$wrapped/ballast-server" \
    --world "$(gpus)" --device "$(device)" --out "$out/text.json"
}

part_nodes() {
  local steps=48
  if [[ $(device) == cpu ]]; then steps=12; fi
  PATH=$PWD/$wrapped:$PATH python3 tests/gpu/several_nodes.py --bin "$wrapped" --gpus "$(gpus)" \
    --backend "$(backend)" --out "$out/nodes.json" --steps "$steps" --seconds 40
}

part_node() {
  local status=0 decode options node=tests/benchmarks/node/node.py most threads
  most=$(nproc)
  threads=$((4 * $(gpus))),$((most / 2)),$most
  # node.py runs the programs of a bundle's bin with its lib.
  options=(--bundle "$bundle" --ranks "$(gpus)" --threads "${1:-$threads}"
    --backend "$(backend)" --corpora "${2:-receipts}" --until 110)
  if [[ $(python3 "$node" --help) == *--decode* ]]; then
    for decode in host device; do
      python3 "$node" "${options[@]}" --decode "$decode" \
        --out "$out/node-$decode.json" || status=1
    done
  else
    python3 "$node" "${options[@]}" --out "$out/node-host.json" || status=1
  fi
  return $status
}

# What bounds `device`: the engines of one GPU, of all, and what exchanging adds.
part_decoding() {
  local status=0 name options node=tests/benchmarks/node/node.py
  for name in one-exchange-8 all-exchange-8 all-direct-8 all-exchange-32 all-direct-32; do
    IFS=- read -r ranks delivery samples <<<"$name"
    options=(--bundle "$bundle" --ranks "$([[ $ranks == one ]] && echo 1 || gpus)"
      --delivery "$delivery" --samples-a-rank "$samples" --threads "${1:-32,32}"
      --backend "$(backend)" --decode device --corpora receipts --baselines "" --until 100
      --seconds 4 --memory 2048)
    # The first of two runs is short and says how long the second has to be.
    timeout 40 python3 "$node" "${options[@]}" --out "$out/decoding-$name.json" || status=1
  done
  return $status
}

part_training() {
  local size=(--shape qwen2_5_vl_3b --token-cost 0.64 --steps 64 --warmup 8
    --slow-steps 24 --batch $((6 * $(gpus))) --workers 14 --samples 1024)
  if [[ $(device) == cpu ]]; then
    size=(--small --steps 3 --warmup 1 --batch 8 --workers 1 --samples 32
      --max-pixels 50176)
  fi
  python3 "$examples/train_vlm.py" --ballast-server "$wrapped/ballast-server" \
    --tokenizer "$bundle/python/chat.tokenizer.json" --world "$(gpus)" \
    --device "$(device)" --fsdp "${size[@]}" --out "$out/training.json" \
    --modes "bound,off,direct,split,direct_phases,exchange,exchange_phases,shards"
}

part_table() {
  local size=(--shape qwen3_5_0_8b --steps 210 --warmup 10 --slow-steps 60
    --patch-cost 1 --patch-pair-cost 2.2e-4 --token-cost 3.6 --token-pair-cost 2.9e-4
    --batch 32 --workers 14 --samples 2048
    --min-pixels 65536 --max-pixels 1605632)
  if [[ $(device) == cpu ]]; then
    size=(--small --steps 3 --warmup 1 --slow-steps 2 --batch 8 --workers 1 --samples 32
      --max-pixels 50176)
  fi
  # What decides comes first: a run that is cut off has written the modes before.
  python3 "$examples/train_vlm.py" --ballast-server "$wrapped/ballast-server" \
    --tokenizer "$bundle/python/chat.tokenizer.json" --world "$(gpus)" \
    --device "$(device)" "${size[@]}" --out "$out/table.json" \
    --modes "bound,shards,exchange,sync,direct,split,apart,off,slice"
  local status=$?
  python3 "$examples/plot_training.py" "$out/table.json" "$out/table.svg" || status=1
  return $status
}

run() {
  local part failed=() begun=$SECONDS left limit status
  declare -A limits=([nccl]=120 [text]=90 [decoding]=120 [feeders]=360 [tests]=480 [bench]=300 [megatron]=300 [bridge]=300 [nodes]=150 [node]=240
    [training]=280 [table]=540)
  out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 1
  shift
  (($# > 0)) || set -- "${parts[@]}"
  for part; do
    [[ -n ${limits[$part]-} ]] || { echo "several.sh: no part $part" >&2; exit 2; }
  done
  [[ -d $bundle ]] && unpack
  export out site wrapped libraries
  for part in "${parts[@]}"; do
    [[ " $* " == *" $part "* ]] || continue
    left=$((${SEVERAL_SECONDS:-540} - (SECONDS - begun)))
    limit=$((left < limits[$part] ? left : limits[$part]))
    echo "== $part (at $((SECONDS - begun)) s, at most $limit s)"
    if ((limit < 20)); then
      failed+=("$part (not run: no time left)")
      continue
    fi
    # A process of its own, which can be ended with all that it started.
    timeout --kill-after=10 "$limit" "$self" part "$part" >"$out/$part.log" 2>&1
    status=$?
    tail -n 25 "$out/$part.log"
    if ((status != 0)); then failed+=("$part ($status)"); fi
  done
  if ((${#failed[@]} > 0)); then
    printf 'FAILED: %s\n' "${failed[*]}"
    return 1
  fi
  echo "PASSED: $*"
}

case ${1-} in
  build) build ;;
  run)
    [[ $# -ge 2 ]] || { echo "several.sh run OUT [PART...]" >&2; exit 2; }
    run "${@:2}"
    ;;
  part) "part_$2" "${@:3}" ;;
  *)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$self" >&2
    exit 2
    ;;
esac
