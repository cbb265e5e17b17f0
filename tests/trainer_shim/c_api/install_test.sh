#!/usr/bin/env bash
# The installed library as its users see it: its exports, programs that
# pkg-config and CMake build against it, and other libraries in the same
# process.
set -euo pipefail
root=$PWD
readonly prefix=$TEST_TMPDIR/prefix
readonly library=$root/trainer_shim/c_api/libballast_shim.so.1
fail() { echo "FAILED: $*"; exit 1; }

deploy/install.sh --prefix "$prefix" --library "$library" >/dev/null
# The tree also works after it is moved as a whole.
mv "$prefix" "$TEST_TMPDIR/moved"
readonly at=$TEST_TMPDIR/moved
so=$at/lib/libballast_shim.so

# Exports only ballast_*, and every function that a header declares.
others=$(nm -D --defined-only --extern-only "$so" | awk '$3 !~ /^ballast_/')
[[ -z $others ]] || fail "exported besides: $others"
declared=$(cat trainer_shim/c_api/c_api*.h |
  grep -oE '\bballast_[a-z_]+\(' | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$so")
for name in $declared; do
  grep -q " T $name$" <<<"$exported" || fail "no $name"
done
dynamic=$(readelf -d "$so")
grep -q 'SONAME.*\[libballast_shim.so.1\]' <<<"$dynamic" || fail soname
# Libraries that other programs use in other versions must stay out of the
# process.
needed=$(awk '/NEEDED/ {print $5}' <<<"$dynamic")
if grep -E 'grpc|ssl|crypto|nccl|cuda' <<<"$needed"; then fail "it needs these"; fi

# C, through pkg-config.
export PKG_CONFIG_PATH=$at/lib/pkgconfig
if command -v pkg-config >/dev/null; then
  read -ra flags <<<"$(pkg-config --cflags --libs ballast_shim)"
  gcc -std=c11 -Wall -Wextra -Werror -Wpedantic -o "$TEST_TMPDIR/misuse" \
    tests/trainer_shim/c_api/misuse_test.c "${flags[@]}"
  LD_LIBRARY_PATH=$at/lib "$TEST_TMPDIR/misuse"
else
  echo "no pkg-config here: not tried"
fi

# Loaded by name into a process that has another protobuf: Python's, if present.
if command -v python3 >/dev/null; then
  python3 - "$so" <<'PYTHON'
import ctypes, sys
try:
    import google.protobuf.descriptor_pb2
except ImportError:
    print("no google.protobuf here: not tried beside it")
lib = ctypes.CDLL(sys.argv[1])
lib.ballast_last_error.restype = ctypes.c_char_p
assert lib.ballast_abi_version() == 1
assert lib.ballast_shim_create(None, None) == 3
assert lib.ballast_last_error() == b"options is NULL"
try:
    from google.protobuf import descriptor_pb2
    text = descriptor_pb2.FileDescriptorProto(name="a").SerializeToString()
    assert descriptor_pb2.FileDescriptorProto.FromString(text).name == "a"
except ImportError:
    pass
PYTHON
fi

# The example trainer, through CMake or by hand, against a server.
cd "$TEST_TMPDIR"
if command -v cmake >/dev/null; then
  cmake -S "$root/trainer_shim/examples/cpp" -B build \
    -DCMAKE_PREFIX_PATH="$at" >cmake.log || { cat cmake.log; fail cmake; }
  cmake --build build >cmake.log || { cat cmake.log; fail "cmake --build"; }
  trainer=$PWD/build/trainer
else
  echo "no cmake here: not tried"
  trainer=$root/trainer_shim/examples/cpp/trainer
fi
server=$root/server/ballast-server
"$server" make-corpus --out data --samples 40 --seed 3 --preset mixed >/dev/null
sockets=$(mktemp -d /tmp/ballast-XXXXXX)
cat >job.yaml <<YAML
sources: [{name: mixed, format: webdataset, path: "data/*.tar"}]
model: {profile: qwen2_5_vl, max_pixels: 200704}
batch: {global: 16, micro: 8}
topology: {modules: {vision: {dp: 2}, language: {dp: 2}}}
serve: {listen: ["unix:$sockets/a.sock"], memory: 64MiB}
YAML
"$server" index --config job.yaml >/dev/null
"$server" serve --config job.yaml >ready 2>server.log &
pid=$!
trap 'kill "$pid" 2>/dev/null; rm -rf "$sockets"' EXIT
"$trainer" "unix:$sockets/a.sock" 2 3 >out
diff out - <<'EXPECTED'
step 0: loss 1.000000
step 1: loss 1.000000
step 2: loss 1.000000
EXPECTED
echo PASSED
