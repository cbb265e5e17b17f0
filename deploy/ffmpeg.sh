#!/usr/bin/env bash
# Makes FFmpeg's libraries for releases: one pinned release, static, with the
# containers and codecs that server/media/video/decoder/media_input.cc reads and nothing
# else, under the LGPL (docs/decisions/0095). Into ~/.local/share/ballast/ffmpeg or
# FFMPEG_PATH, where a build finds them (bazel/ffmpeg_configure.bzl). Does nothing if
# the same is there; takes some minutes otherwise. Without them a build takes Debian's.
#
#   deploy/ffmpeg.sh [--source FILE]
#
#   --source FILE  ffmpeg-VERSION.tar.xz, instead of fetching it: from ffmpeg.org, or
#                  from Debian's archive, which has the same file. Its hash is checked
set -euo pipefail
recipe=$(sha256sum "$0")
readonly version=8.1.2
readonly sha256=464beb5e7bf0c311e68b45ae2f04e9cc2af88851abb4082231742a74d97b524c
readonly demuxers=asf,avi,flv,h264,hevc,ivf,m4v,matroska,mov,mpegps,mpegts,mpegvideo,obu,ogg
readonly decoders=aac,alac,cinepak,dnxhd,dvvideo,ffv1,flv,h263,h264,hevc,huffyuv,libdav1d,mjpeg\
,mpeg1video,mpeg2video,mpeg4,msmpeg4v1,msmpeg4v2,msmpeg4v3,png,prores,rawvideo,svq3,theora,vc1\
,vp6,vp6f,vp8,vp9,wmv1,wmv2,wmv3

source=${FFMPEG_SOURCE:-}
while (($# > 0)); do
  case $1 in
    --source) source=$2; shift 2 ;;
    --help | -h) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "ffmpeg.sh: unknown argument \"$1\"; see --help" >&2; exit 2 ;;
  esac
done
fail() { echo "ffmpeg.sh: $*" >&2; exit 1; }
root=${FFMPEG_PATH:-${HOME:?"ffmpeg.sh: HOME is unset; set FFMPEG_PATH"}/.local/share/ballast/ffmpeg}
[[ $(cat "$root/recipe_sha256" 2>/dev/null) != "${recipe%% *}" ]] || exit 0
[[ ! -e $root || -e $root/recipe_sha256 ]] ||
  fail "$root is not a folder that ffmpeg.sh made; remove it, or set FFMPEG_PATH to another"
missing=()
for package in g++ libdav1d-dev make nasm xz-utils zlib1g-dev; do
  [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
    missing+=("$package")
done
if ((${#missing[@]} > 0)); then
  as_root=()
  ((EUID == 0)) || as_root=(sudo)
  echo "ffmpeg.sh: installing ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get could not install ${missing[*]}"
fi

mkdir -p "$(dirname "$root")"
work=$(mktemp -d "$root.XXXXXX")
trap 'rm -rf "$work"' EXIT
matches() { [[ -f $1 ]] && echo "$sha256  $1" | sha256sum --check --quiet - 2>/dev/null; }

# Debian's archive, by apt and the keys of Debian: the newest suite has the release.
from_debian() (
  set -e
  mkdir -p "$work/lists/partial"
  cd "$work"
  uri=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
    "${uri:-http://deb.debian.org/debian} sid main" >sources.list
  options=(-o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$work/lists" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" -qq update
  package=$(apt-cache "${options[@]}" showsrc ffmpeg |
    sed -n "s/^Version: \(.*$version-[^ ]*\)$/\1/p" | head -n 1)
  apt-get "${options[@]}" -qq source --download-only --tar-only "ffmpeg=$package"
)
archive=$work/ffmpeg-$version.tar.xz
if [[ -n $source ]]; then
  cp "$source" "$archive"
  matches "$archive" || fail "$source: not FFmpeg $version, whose SHA-256 is $sha256"
else
  curl --silent --fail --location --max-time 300 --output "$archive" \
    "https://ffmpeg.org/releases/ffmpeg-$version.tar.xz" || true
  if ! matches "$archive"; then
    from_debian >"$work/apt.log" 2>&1 || true
    ! matches "$work/ffmpeg_$version.orig.tar.xz" || mv "$work/ffmpeg_$version.orig.tar.xz" "$archive"
  fi
  matches "$archive" || {
    cat "$work/apt.log" >&2
    fail "found FFmpeg $version neither at ffmpeg.org nor in Debian's archive;" \
      "give it as --source FILE (SHA-256 $sha256)"
  }
fi

# Of deploy/aarch64.sh: the tools in PATH compile for another processor.
cross=()
[[ -z ${BALLAST_SYSROOT:-} ]] ||
  cross=(--enable-cross-compile "--arch=$(uname -m)" --target-os=linux --host-cc=/usr/bin/gcc)
echo "ffmpeg.sh: making FFmpeg $version in $root"
tar --extract --file "$archive" --directory "$work"
# Chained: a subshell before "||" does not end at an error.
(
  cd "$work/ffmpeg-$version" &&
    # No path in what is made: the prefix would be in it.
    ./configure "${cross[@]}" --prefix=/ --disable-everything --disable-autodetect --disable-programs \
      --disable-doc --disable-network --disable-avdevice --disable-avfilter \
      --disable-swresample --disable-debug --disable-pthreads --enable-pic --enable-zlib \
      --enable-libdav1d --enable-parsers "--enable-demuxer=$demuxers" \
      "--enable-decoder=$decoders" &&
    grep -q 'FFMPEG_LICENSE "LGPL version 2.1 or later"' config.h &&
    make -j"$(nproc)" &&
    make install-libs install-headers "DESTDIR=$work/tree"
) >"$work/log" 2>&1 || {
  tail -n 40 "$work/log" >&2
  fail "FFmpeg $version could not be made; the end of its output is above"
}
# Its only function that RHEL 9's glibc has in an older version alone: both are there.
case $(uname -m) in
  x86_64) base=GLIBC_2.2.5 ;;
  *) base=GLIBC_2.17 ;;
esac
for library in "$work"/tree/lib/*.a; do
  objcopy "--redefine-sym=hypot=hypot@$base" "$library"
done
cp "$work/ffmpeg-$version/COPYING.LGPLv2.1" "$work/tree/LICENSE"
# A release includes it: the LGPL requires the source along with the programs.
cp "$archive" "$work/tree/"
echo "$version" >"$work/tree/VERSION"
echo "${recipe%% *}" >"$work/tree/recipe_sha256"
chmod -R a+rX "$work/tree"
# Renamed at the end: an interrupted run leaves no half-filled folder.
rm -rf "$root"
mv -T "$work/tree" "$root"
