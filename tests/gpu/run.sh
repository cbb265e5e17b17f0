#!/usr/bin/env bash
# Tests that need a GPU. The machine that has one may lack Bazel and our
# libraries, so what runs there is a bundle made here (docs/gpu_tests.md).
#
#   tests/gpu/run.sh build   builds the tests and benchmarks into gpu_bundle/,
#                            with the shared libraries that they need, and the
#                            corpus of $BALLAST_SHARED_DIR if that is set; needs
#                            a CUDA toolkit and no GPU
#   tests/gpu/run.sh run     runs every test of the bundle, each for at most 150
#                            seconds, all for at most 460; needs a GPU and no
#                            Bazel; ends with "N passed, N failed"
#   tests/gpu/run.sh bench   runs every benchmark of the bundle
#   tests/gpu/run.sh         build, then run
#
# A machine without a GPU fails every test: none is passed over.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly bundle=gpu_bundle
readonly max_mib=64
# Carried packed, and unpacked by the first run.
readonly packed=programs.tar.gz
readonly parts=(tests benchmarks bin lib python shim)
# Programs that test scripts run.
readonly programs=(//server:ballast-server
  //trainer_shim/ballast_rank:ballast-rank)
# Also needed by python_gpu_test.sh.
readonly wheel=//trainer_shim/python:wheel
readonly python_files=(tests/gpu/python_gpu_test.py
  tests/server/text/testdata/chat.tokenizer.json)
readonly library=//trainer_shim/c_api:libballast_shim.so.1

# Lists the shared libraries of a bundle: all except the C library, which must
# be the machine's own, the driver's, and NCCL and cuBLAS, which are too large
# to carry.
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv)|libcuda|libnvidia-[^/]*|libnccl|libcublas(Lt)?)\.so[^/]*$'
}

build() {
  # Without Parquet, whose libraries alone would exceed the limit.
  local options=(--config=opt --config=cuda --config=noarrow)
  local targets bin kind target path
  mapfile -t targets < <(bazel query --noshow_progress \
    'attr(tags, "\bgpu\b", kind("cc_(test|binary) rule", //tests/gpu/...))')
  if ((${#targets[@]} == 0)); then
    echo "tests/gpu/run.sh: no GPU targets; is there a CUDA toolkit?" >&2
    return 1
  fi
  bazel build --noshow_progress "${options[@]}" "${targets[@]}" "${programs[@]}" \
    "$library" "$wheel"
  bin=$(bazel info --noshow_progress "${options[@]}" bazel-bin)

  rm -rf "$bundle"
  mkdir -p "$bundle"/{tests,benchmarks,bin,lib,python/examples}
  for target in "${targets[@]}"; do
    kind=tests
    [[ $target == *_benchmark ]] && kind=benchmarks
    path=${target#//}
    install -m 755 "$bin/${path/://}" "$bundle/$kind/"
  done
  for target in "${programs[@]}"; do
    path=${target#//}
    install -m 755 "$bin/${path/://}" "$bundle/bin/"
  done
  libraries_of "$bundle"/{tests,benchmarks,bin}/* |
    xargs install -m 644 -t "$bundle/lib"
  strip --strip-unneeded "$bundle"/{tests,benchmarks,bin}/*
  install -m 755 tests/gpu/*_test.sh "$bundle/tests/"
  install -m 644 "$bin"/trainer_shim/python/ballast-*.whl "${python_files[@]}" \
    "$bundle/python/"
  install -m 644 trainer_shim/python/examples/*.py "$bundle/python/examples/"
  path=${library#//}
  deploy/install.sh --prefix "$PWD/$bundle/shim" --library "$bin/${path/://}"
  if [[ -d ${BALLAST_SHARED_DIR-}/corpus ]]; then
    mkdir "$bundle/shared"
    cp -R "$BALLAST_SHARED_DIR/corpus" "$bundle/shared/"
  fi

  # The library finds these in lib/.
  rm -r "$bundle/shim/lib/ballast"
  tar -C "$bundle" -czf "$bundle/$packed" "${parts[@]}"
  (cd "$bundle" && rm -r "${parts[@]}")

  local mib
  mib=$(du -sm "$bundle" | cut -f1)
  echo "$bundle: ${#targets[@]} programs, $mib MiB"
  if ((mib > max_mib)); then
    echo "tests/gpu/run.sh: $bundle is above $max_mib MiB" >&2
    return 1
  fi
}

# The bundle's libraries first, then the machine's path, then the usual places
# of the driver's, CUDA's and NCCL's libraries: a toolkit, PyTorch's packages.
library_path() {
  local path=$PWD/$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} dir
  for dir in "${CUDA_PATH:-/usr/local/cuda}/lib64" /usr/local/nvidia/lib64 \
    $(python3 -c '
import glob, site, sys
for root in dict.fromkeys(sys.path + site.getsitepackages()):
    print(*glob.glob(root + "/nvidia/*/lib"), sep="\n")' 2>/dev/null); do
    [[ -d $dir ]] && path+=:$dir
  done
  echo "$path"
}

# Drops the lines of a test's output that only say that it ran and passed.
shorten() {
  grep -vE '^\[( RUN| +OK|-)' || true
}

# each KIND SECONDS FILTER TOTAL: runs every program of the kind, one after the
# other, for at most SECONDS each. One that fails stops no other; those that are
# left after TOTAL seconds count as failed.
each() {
  local program libraries limit passed=0 failed=0
  SECONDS=0
  if [[ -f $bundle/$packed ]]; then
    tar -C "$bundle" -xzf "$bundle/$packed"
    rm "$bundle/$packed"
  fi
  if [[ ! -d $bundle/$1 ]]; then
    echo "tests/gpu/run.sh: no $bundle/$1; tests/gpu/run.sh build makes it" >&2
    return 1
  fi
  libraries=$(library_path)
  if [[ -d $bundle/shared ]]; then
    export BALLAST_SHARED_DIR=$PWD/$bundle/shared
  fi
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  for program in "$bundle/$1"/*; do
    limit=$(($4 - SECONDS < $2 ? $4 - SECONDS : $2))
    echo "== $program (at $SECONDS s)"
    if ((limit <= 0)); then
      failed=$((failed + 1))
      echo "NOT RUN $program: $4 seconds are over"
    elif LD_LIBRARY_PATH=$libraries TEST_TMPDIR=$scratch \
      timeout --kill-after=10 "$limit" "$program" 2>&1 | "$3"; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      echo "FAILED $program"
    fi
  done
  echo "$passed passed, $failed failed, in $SECONDS s"
  ((failed == 0))
}

case ${1-} in
  build) build ;;
  run) each tests 150 shorten 460 ;;
  bench) each benchmarks 600 cat 3600 ;;
  "")
    build
    each tests 150 shorten 460
    ;;
  *)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
