#!/usr/bin/env bash
# Tests that need a GPU. The machine that has one may lack Bazel and our
# libraries, so what runs there is a bundle made here (docs/gpu_tests.md).
#
#   tests/gpu/run.sh build   builds the tests and benchmarks into gpu_bundle/,
#                            with the shared libraries that they need, and the
#                            corpus of $BALLAST_SHARED_DIR and the clips of
#                            $BALLAST_VIDEO_CLIPS if these are set; needs a CUDA
#                            toolkit, pip (deploy/wheel.sh) and no GPU
#   tests/gpu/run.sh run     runs every test of the bundle, each for at most 150
#                            seconds, all for at most 460; needs a GPU and no
#                            Bazel; ends with "N passed, N failed"
#   tests/gpu/run.sh run --part K/N
#                            the K-th of N parts, at most 300 seconds: a share of
#                            the tests of each program, and of the scripts
#   tests/gpu/run.sh sanitize [--part K/N] [NAME...]
#                            runs the programs of the tests, or those of these names,
#                            under compute-sanitizer: memcheck, then racecheck, each for
#                            at most 300 seconds; needs compute-sanitizer in $PATH or
#                            in the toolkit of $CUDA_PATH. Leaves out the tests over
#                            NCCL, which probes what the driver can do, the one of
#                            gigabytes, and those in which the device waits for the
#                            host, where compute-sanitizer waits for the device. Parts,
#                            as of `run`, may run side by side
#   tests/gpu/run.sh bench   runs every benchmark of the bundle that needs no
#                            server
#   gpu_bundle/engines.sh    measures `model.decode: device` from the server to
#                            the GPU (tests/gpu/engines.py)
#   tests/gpu/run.sh         build, then run
#
# A machine without a GPU fails every test: none is passed over.
#
# `build` takes targets of tests/gpu, for a bundle of these and of the programs
# alone; after `--python` with the package for Python and its test, too; and Bazel's
# options from $BALLAST_BUILD_OPTIONS.
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
cd "$(dirname "$0")/../.."
. tests/gpu/bundle.sh

readonly bundle=gpu_bundle
readonly max_mib=64
readonly parts=(tests benchmarks bin lib python shim)
# Programs that test scripts run.
readonly programs=(//server:ballast-server
  //trainer_shim/ballast_rank:ballast-rank)
# Also needed by python_gpu_test.sh.
readonly wheel=//trainer_shim/python:library_wheel
readonly python_files=(tests/gpu/python_gpu_test.py
  tests/server/text/testdata/chat.tokenizer.json)
readonly library=//trainer_shim/c_api:libballast_shim.so.1
# Without Parquet, whose libraries alone would exceed the limit.
readonly options_default="--config=opt --config=cuda --config=noarrow"
# Scripts that are called in the bundle itself.
readonly scripts=(tests/gpu/engines.sh tests/gpu/engines.py tests/gpu/bundle.sh)

# Lists the shared libraries of a bundle: all except the C library, which must
# be the machine's own, the driver's, and NCCL and cuBLAS, which are too large
# to carry.
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv)|libcuda|libnvidia-[^/]*|libnccl|libcublas(Lt)?)\.so[^/]*$'
}

build() {
  local options targets bin kind target path python=0
  if [[ ${1-} == --python ]]; then
    python=1
    shift
  fi
  local all=$((! $#))
  ((all)) && python=1
  read -ra options <<<"${BALLAST_BUILD_OPTIONS-$options_default}"
  targets=("$@")
  if ((all)); then
    mapfile -t targets < <(bazel query --noshow_progress \
      'attr(tags, "\bgpu\b", kind("cc_(test|binary) rule", //tests/gpu/...))')
  fi
  if ((${#targets[@]} == 0)); then
    echo "tests/gpu/run.sh: no GPU targets; is there a CUDA toolkit?" >&2
    return 1
  fi
  local built=("${targets[@]}" "${programs[@]}")
  ((all)) && built+=("$library")
  ((python)) && built+=("$wheel")
  bazel build --noshow_progress "${options[@]}" "${built[@]}"
  bin=$(bazel info --noshow_progress "${options[@]}" bazel-bin)

  rm -rf "$bundle"
  mkdir -p "$bundle"/{tests,benchmarks,bin,lib,node,python/examples,shim}
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
  mapfile -t built < <(find "$bundle"/{tests,benchmarks,bin} -type f)
  libraries_of "${built[@]}" | xargs install -m 644 -t "$bundle/lib"
  strip --strip-unneeded "${built[@]}"
  if ((python)); then
    install -m 755 tests/gpu/python_gpu_test.sh "$bundle/tests/"
    install -m 644 "${python_files[@]}" "$bundle/python/"
    deploy/wheel.sh --out "$bundle/python" \
      --wheel "$bin"/trainer_shim/python/library_wheel/ballast_loader-*.whl
    install -m 644 trainer_shim/python/examples/*.py "$bundle/python/examples/"
  fi
  if ((all)); then
    install -m 755 tests/gpu/*_test.sh "$bundle/tests/"
    path=${library#//}
    deploy/install.sh --prefix "$PWD/$bundle/shim" --library "$bin/${path/://}"
    # The library finds these in lib/.
    rm -r "$bundle/shim/lib/ballast"
  fi
  if [[ -d ${BALLAST_SHARED_DIR-}/corpus ]]; then
    mkdir "$bundle/shared"
    cp -R "$BALLAST_SHARED_DIR/corpus" "$bundle/shared/"
  fi

  if [[ -f ${BALLAST_VIDEO_CLIPS-} ]]; then
    install -m 644 "$BALLAST_VIDEO_CLIPS" "$bundle/video_clips"
  fi

  install -m 755 "${scripts[@]}" "$bundle/"
  install -m 644 tests/benchmarks/node/*.py "$bundle/node/"
  # Carried packed, and unpacked by the first run. The programs share much code, which
  # a window of 64 MiB finds again.
  tar -C "$bundle" -I "xz -9 -T2" -cf "$bundle/programs.tar.xz" "${parts[@]}"
  (cd "$bundle" && rm -r "${parts[@]}")

  local mib
  mib=$(du -sm "$bundle" | cut -f1)
  echo "$bundle: ${#targets[@]} programs, $mib MiB"
  if ((mib > max_mib)); then
    echo "tests/gpu/run.sh: $bundle is above $max_mib MiB" >&2
    return 1
  fi
}

# Drops the lines of a test's output that only say that it ran and passed.
shorten() {
  grep -vE '^\[( RUN| +OK|-)' || true
}

# each KIND SECONDS FILTER TOTAL [K/N]: runs every program of the kind, one after
# the other, for at most SECONDS each. One that fails stops no other; those that are
# left after TOTAL seconds count as failed. With K/N, programs of GoogleTest run
# their K-th shard of N, and each script runs in one part.
#
# Programs run under the command in the array `under`, if any; then scripts do not,
# nor programs other than those in `names`, unless that is empty.
under=()
names=()
each() {
  local program libraries limit passed=0 failed=0 seen=0
  local part=${5:-1/1}
  export GTEST_SHARD_INDEX=$((${part%/*} - 1)) GTEST_TOTAL_SHARDS=${part#*/}
  SECONDS=0
  unpack_bundle "$bundle"
  if [[ ! -d $bundle/$1 ]]; then
    echo "tests/gpu/run.sh: no $bundle/$1; tests/gpu/run.sh build makes it" >&2
    return 1
  fi
  libraries=$(library_path "$bundle")
  if [[ -d $bundle/shared ]]; then
    export BALLAST_SHARED_DIR=$PWD/$bundle/shared
  fi
  if [[ -f $bundle/video_clips ]]; then
    export BALLAST_VIDEO_CLIPS=$PWD/$bundle/video_clips
  fi
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  for program in "$bundle/$1"/*; do
    if [[ $program == *.sh ]] &&
      ((seen++ % GTEST_TOTAL_SHARDS != GTEST_SHARD_INDEX)); then
      continue
    fi
    if ((${#names[@]})) && [[ " ${names[*]} " != *" ${program##*/} "* ]]; then
      continue
    fi
    # compute-sanitizer calls a program failed that starts no kernel, as one does
    # whose part has no test.
    if ((${#under[@]})) && { [[ $program == *.sh ]] ||
      (($(LD_LIBRARY_PATH=$libraries "$program" --gtest_list_tests |
        grep -c '^ ') <= GTEST_SHARD_INDEX)); }; then
      continue
    fi
    limit=$(($4 - SECONDS < $2 ? $4 - SECONDS : $2))
    echo "== $program (at $SECONDS s)"
    if ((limit <= 0)); then
      failed=$((failed + 1))
      echo "NOT RUN $program: $4 seconds are over"
    elif LD_LIBRARY_PATH=$libraries TEST_TMPDIR=$scratch \
      timeout --kill-after=10 "$limit" "${under[@]}" "$program" 2>&1 | "$3"; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      echo "FAILED $program"
    fi
  done
  rm -rf "$scratch"
  echo "$passed passed, $failed failed, in $SECONDS s"
  ((failed == 0))
}

# Ends the script unless the arguments are "--part K/N", K from 1 to N.
check_part() {
  if [[ ! $* =~ ^--part\ [1-9][0-9]*/[1-9][0-9]*$ ]] || ((${2%/*} > ${2#*/})); then
    echo "tests/gpu/run.sh: found \"$*\"; wanted --part K/N, K from 1 to N" >&2
    exit 2
  fi
}

# sanitize [--part K/N] [NAME...]
sanitize() {
  local tool sanitizer status=0 part=1/1
  if [[ ${1-} == --part ]]; then
    check_part "${@:1:2}"
    part=$2
    shift 2
  fi
  names=("$@")
  sanitizer=$(command -v compute-sanitizer) ||
    sanitizer=${CUDA_PATH:-/usr/local/cuda}/bin/compute-sanitizer
  if [[ ! -x $sanitizer ]]; then
    echo "tests/gpu/run.sh: no compute-sanitizer in PATH, nor $sanitizer;" \
      "it comes with the CUDA toolkit" >&2
    return 1
  fi
  export GTEST_FILTER='-*Nccl*:*OffsetsPast32Bits*:*SlowReaders*:*AReleaseAfterTheShim*'
  for tool in memcheck racecheck; do
    echo "==== $tool"
    # Calls that fail are in the statuses that the tests compare.
    under=("$sanitizer" --tool "$tool" --error-exitcode 1 --print-limit 20)
    [[ $tool == memcheck ]] && under+=(--report-api-errors no)
    each tests 300 shorten 7200 "$part" || status=1
  done
  return "$status"
}

case ${1-} in
  build) build "${@:2}" ;;
  run)
    if (($# == 1)); then
      each tests 150 shorten 460
    else
      check_part "${@:2}"
      each tests 150 shorten 300 "$3"
    fi
    ;;
  sanitize) sanitize "${@:2}" ;;
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
