#!/usr/bin/env bash
# Makes a release of a clean checkout, into dist/VERSION: wheel, tarball and .deb
# packages, the source of FFmpeg, which they hold (docs/decisions/0095), a bill of
# materials (SPDX) of all that they bring, and SHA256SUMS. The same commit gives the
# same bytes.
#
#   deploy/release.sh [--check] [--tag] [--arm] [--cuda] [--out DIR]
#                     [--programs DIR --wheel FILE [--fast]]
#
#   --check     make it twice and compare the checksums
#   --tag       tag the commit as vVERSION, once all is made
#   --arm       also wheel and tarball for aarch64 (deploy/aarch64.sh)
#   --cuda      fail if the CUDA toolkit is missing
#   --out DIR   instead of dist
#   --programs DIR, --wheel FILE, --fast
#               as in deploy/package.sh and deploy/wheel.sh: trials without a build
#
# Before: set kVersion (common/build_info.h), make CHANGELOG.md's first section the
# version's, write down what the release promises
# (bazel run //tests/docs:make_reference -- --promise), commit.
set -euo pipefail
cd "$(dirname "$0")/.."

check=
tag=
arm=
trial=
out=dist
package=()
wheel=()
while (($# > 0)); do
  case $1 in
    --check) check=1; shift ;;
    --tag) tag=1; shift ;;
    --arm) arm=1; shift ;;
    --cuda | --fast) package+=("$1"); shift ;;
    --out) out=$2; shift 2 ;;
    --programs) trial=1; package+=("$1" "$2"); shift 2 ;;
    --wheel) wheel+=("$1" "$2"); shift 2 ;;
    --help | -h) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "release.sh: unknown argument \"$1\"; see --help" >&2; exit 2 ;;
  esac
done

fail() { echo "release.sh: $*" >&2; exit 1; }
version=$(sed -n 's/.*kVersion\[\] = "\(.*\)";/\1/p' common/build_info.h)
section=$(grep --max-count=1 '^## ' CHANGELOG.md || true)
[[ $section == "## $version" ]] ||
  fail "CHANGELOG.md begins with \"$section\"; wanted \"## $version\" (kVersion in" \
    "common/build_info.h)"
[[ $(head -n 1 docs/reference/promise.txt) == "# What release $version keeps:"* ]] ||
  fail "docs/reference/promise.txt is not of $version:" \
    "bazel run //tests/docs:make_reference -- --promise"
[[ -z $(git status --porcelain) ]] ||
  fail "the checkout has changes that no commit holds; a release is made of a commit"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

readonly ffmpeg=${FFMPEG_PATH:-${HOME:-}/.local/share/ballast/ffmpeg}
make() {
  local to=$1
  mkdir -p "$to"
  deploy/wheel.sh --out "$to" "${wheel[@]}"
  deploy/package.sh --out "$to" "${package[@]}"
  deploy/package.sh --only server --out "$to" "${package[@]}"
  if [[ -n $arm ]]; then
    deploy/wheel.sh --arch aarch64 --out "$to"
    deploy/package.sh --arch aarch64 --out "$to"
  fi
  [[ -n $trial ]] || cp "$ffmpeg"/ffmpeg-*.tar.xz "$to/"
  python3 deploy/bill_of_materials.py --version "$version" --date "$SOURCE_DATE_EPOCH" \
    "$to"/*.{whl,tar.gz,deb} >"$to/ballast-$version.spdx.json"
  (cd "$to" && sha256sum -- *.* >SHA256SUMS)
}

if [[ -n $tag ]]; then
  [[ -z $(git tag --list "v$version") ]] || fail "the tag v$version exists already"
  git var GIT_COMMITTER_IDENT >/dev/null || fail "nobody is named who tags (above)"
fi
folder=$out/$version
[[ ! -e $folder ]] || fail "$folder exists already; move it away or name another --out"
make "$folder"
if [[ -n $check ]]; then
  again=$(mktemp -d)
  trap 'rm -rf "$again"' EXIT
  [[ -n $trial ]] || bazel clean
  [[ -z $arm ]] || deploy/aarch64.sh run bazel clean
  make "$again"
  diff "$folder/SHA256SUMS" "$again/SHA256SUMS" || fail "the second run made other bytes (above)"
  echo "release.sh: twice the same bytes"
fi
if [[ -n $tag ]]; then
  git tag --annotate "v$version" --message "Ballast $version"
  echo "release.sh: tagged v$version; git push origin v$version publishes it"
fi
cat "$folder/SHA256SUMS"
