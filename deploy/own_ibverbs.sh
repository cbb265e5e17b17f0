#!/usr/bin/env bash
# Gives the libibverbs in a folder of bundled libraries a name that no other library has, which
# Gloo then loads. NCCL looks for libibverbs.so.1 and must find the machine's,
# whose drivers fit it (docs/decisions/0025-gloo.md). Safe to repeat.
#
#   deploy/own_ibverbs.sh FOLDER
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
cd "$1"
[[ -e libibverbs.so.1 ]] || exit 0
readonly own=libballast_ibverbs.so.1
mv libibverbs.so.1 "$own"
patchelf --set-soname "$own" "$own"
patchelf --replace-needed libibverbs.so.1 "$own" libgloo.so.*
# Linkers look for a library's libraries where it says itself.
for file in "$own" libgloo.so.*; do
  patchelf --force-rpath --set-rpath '$ORIGIN' "$file"
done
