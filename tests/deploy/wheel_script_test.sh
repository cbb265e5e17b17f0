#!/usr/bin/env bash
# deploy/wheel.sh makes a wheel that brings its libraries: programs and shim find
# none outside of it but those that every machine with Python has. Skipped unless
# BALLAST_AUDITWHEEL names auditwheel, with patchelf >= 0.14.5 in the same folder.
set -euo pipefail
if [[ -z ${BALLAST_AUDITWHEEL:-} ]]; then
  echo "SKIPPED: BALLAST_AUDITWHEEL is unset: no auditwheel, and a test fetches none"
  exit 0
fi
fail() {
  echo "wheel_script_test: $*" >&2
  exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$(dirname "$BALLAST_AUDITWHEEL"):$PATH deploy/wheel.sh --out "$work" \
  --auditwheel "$BALLAST_AUDITWHEEL" --wheel trainer_shim/python/ballast_loader-*.whl
# Bundles of GPU tests bring the wheel of the library alone, without programs.
PATH=$(dirname "$BALLAST_AUDITWHEEL"):$PATH deploy/wheel.sh --out "$work/library" \
  --auditwheel "$BALLAST_AUDITWHEEL" --wheel trainer_shim/python/library_wheel/ballast_loader-*.whl
wheel=$(echo "$work"/ballast_loader-*-py3-none-manylinux_2_34_"$(uname -m)".whl)
[[ -f $wheel ]] || fail "found $(ls "$work"); wanted a wheel of manylinux_2_34"
deploy/symbol_versions.py "$wheel" || fail "the wheel does not run everywhere (above)"
size=$(stat -c %s "$wheel")
echo "$(basename "$wheel"): $((size / 1000000)) MB"
((size < 100000000)) || fail "$size bytes are more than PyPI takes"

python3 -m zipfile --extract "$wheel" "$work/tree"
info=$(echo "$work"/tree/ballast_loader-*.dist-info)
[[ -s $info/licenses/LICENSE ]] || fail "the wheel lacks our own licence"
# Compiled in; headers with code; brought along.
for package in libopencv-core-dev nlohmann-json3-dev libgrpc++1.51 libdav1d6 \
  libsentencepiece0 libsndfile1 libsoxr0; do
  [[ -s $info/licenses/$package ]] || fail "the wheel lacks the licence of $package"
done
if compgen -G "$work/tree/ballast.libs/libarrow*" >/dev/null; then
  [[ -s $info/licenses/arrow ]] || fail "the wheel lacks the licence of Arrow"
fi
# Every library that it brings: the packages that own the original, none of Arrow or CUDA.
mapfile -t bundled < <(basename --multiple "$work"/tree/ballast.libs/*.so* |
  sed -E 's/-[0-9a-f]{8,}(\.so)/\1/')
declare -A owners=()
while IFS= read -r line; do
  owners[$(basename "${line##* }")]+=" ${line%%[:,]*}"
done < <(dpkg-query --search "${bundled[@]/#/*/}" 2>/dev/null || true)
((${#owners[@]} > 50)) || fail "only ${#owners[@]} libraries have packages"
for library in "${!owners[@]}"; do
  found=
  for package in ${owners[$library]}; do [[ ! -s $info/licenses/$package ]] || found=1; done
  [[ -n $found ]] || fail "the wheel brings $library without the licence of${owners[$library]}"
done
for file in "$info"/licenses/*; do
  name=$(basename "$file")
  grep -qxF "License-File: $name" "$info/METADATA" || fail "METADATA does not name $name"
  grep -q "/licenses/$name,sha256=" "$info/RECORD" || fail "RECORD does not name $name"
done
echo "$(find "$info/licenses" -type f | wc -l) licences"
readonly everywhere='^(linux-vdso|ld-linux[^/]*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|z))\.so'
checked=0
for file in "$work"/tree/ballast/{bin/*,lib/*.so,lib/ballast/helpers/*}; do
  chmod +x "$file"
  libraries=$(ldd "$file")
  while read -r name arrow path _; do
    [[ $arrow == "=>" ]] || continue
    [[ ! $name =~ $everywhere ]] || continue
    [[ $path == "$work"/* || $(realpath "$path") == "$work"/* ]] ||
      fail "$(basename "$file") takes $name from ${path:-nowhere}"
    checked=$((checked + 1))
  done <<<"$libraries"
done
((checked > 50)) || fail "only $checked libraries were looked at"
echo "$checked libraries, all in the wheel"
env -i "$work/tree/ballast/bin/ballast-server" inspect helpers || fail "a helper does not run"
# A wheel of the library alone starts no helpers, and brings nothing for them.
python3 -m zipfile --list "$work"/library/ballast_loader-*.whl >"$work/list"
! grep -E 'helpers/|sentencepiece|sndfile|dav1d' "$work/list" || fail "a trainer's wheel has decoders"
