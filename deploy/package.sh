#!/usr/bin/env bash
# Builds the packages for distribution, into dist/:
#
#   ballast-VERSION-linux-ARCH.tar.gz  relocatable: unpack it anywhere on a Linux
#                                      with glibc 2.34 or newer; brings its libraries,
#                                      video, audio and SentencePiece included
#   ballast_VERSION_ARCH.deb           Debian 12: server, tools, shim, headers,
#                                      Python package, systemd unit, pages
#
#   deploy/package.sh [--arch aarch64] [--only server] [--cuda] [--out DIR]
#                     [--programs DIR] [--fast]
#
#   --arch aarch64  only the tarball, on another machine, by deploy/aarch64.sh: without
#                   CUDA
#   --only server   only the server and ballastctl, as ballast-server_….deb and no
#                   tarball
#   --cuda          fail if the CUDA toolkit is missing (without it the shim supports
#                   hosts only)
#   --out DIR       instead of dist
#   --programs DIR  a bazel-bin with everything built
#   --fast          compress less: larger files, sooner
set -euo pipefail
cd "$(dirname "$0")/.."
# Installed files are readable by all and writable by their owner only, whatever
# the builder's umask.
umask 022
if [[ "${*:1:2}" == "--arch aarch64" ]]; then exec deploy/aarch64.sh run "$0" "${@:3}"; fi

only=
out=dist
programs=
effort=9
format=xz
options=(--config=opt --config=ffmpeg)
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
while (($# > 0)); do
  case $1 in
    --only) only=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --programs) programs=$(realpath "$2"); shift 2 ;;
    --fast) effort=1; format=gzip; shift ;;
    --cuda) options+=(--config=cuda); shift ;;
    --help | -h) usage; exit 0 ;;
    *) echo "package.sh: unknown argument \"$1\"" >&2; usage >&2; exit 2 ;;
  esac
done
if [[ -n $only && $only != server ]]; then
  echo "package.sh: --only $only; wanted server" >&2
  exit 2
fi
targets=(//server:ballast-server //client/ballastctl)
if [[ -z $only ]]; then
  targets+=(//trainer_shim/ballast_rank:ballast-rank
    //trainer_shim/c_api:libballast_shim.so.1)
fi
if [[ -z $programs ]]; then
  deploy/setup.sh
  deploy/ffmpeg.sh
  bazel build --noshow_progress "${options[@]}" "${targets[@]}"
  programs=$(bazel info --noshow_progress "${options[@]}" bazel-bin)
fi

# Dates in the packages, so that the same sources give the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}
export SOURCE_DATE_EPOCH
version=$(sed -n 's/.*kVersion\[\] = "\(.*\)";/\1/p' common/build_info.h)
arch=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
out=$(realpath "$out")
name=ballast${only:+-$only}

# bin/, lib/, include/, …, as below /usr.
tree=$work/tree
install -D -m 755 -t "$tree/bin" "$programs/server/ballast-server" \
  "$programs/client/ballastctl/ballastctl"
if [[ -z $only ]]; then
  install -m 755 -t "$tree/bin" "$programs/trainer_shim/ballast_rank/ballast-rank"
  deploy/install.sh --prefix "$tree" \
    --library "$programs/trainer_shim/c_api/libballast_shim.so.1" >/dev/null
  # The tarball contains all libraries; the package depends on Debian's.
  rm -r "$tree/lib/ballast"
  (cd trainer_shim/python && find ballast -name '*.py' -o -name py.typed) |
    while read -r file; do
      install -D -m 644 "trainer_shim/python/$file" "$tree/python/$file"
    done
  install -D -m 644 -t "$tree/python/ballast/models" models/*.textproto
  # Metadata by which pip and importlib.metadata know the package.
  mkdir "$tree/python/ballast_loader-$version.dist-info"
  printf 'Metadata-Version: 2.1\nName: ballast-loader\nVersion: %s\n' "$version" \
    >"$tree/python/ballast_loader-$version.dist-info/METADATA"
fi

# Installs everything that is not a program.
share() {
  local root=$1
  find deploy -mindepth 2 -not -type d -not -path 'deploy/debian/*' |
    while read -r file; do
      install -D -m "$([[ $file == *.sbatch ]] && echo 755 || echo 644)" \
        "$file" "$root/share/ballast/$file"
    done
  install -D -m 644 -t "$root/share/ballast" deploy/ballast.yaml
  (cd docs && find . -name '*.md' -o -name '*.svg' -o -name '*.png') |
    while read -r page; do install -D -m 644 "docs/$page" "$root/share/doc/$name/docs/$page"; done
  install -D -m 644 -t "$root/share/doc/$name" README.md
}
share "$tree"

# Lists the programs and libraries of a tree.
elves() {
  find "$1" -type f \( -perm -100 -o -name '*.so*' \) -print0 |
    while IFS= read -r -d '' file; do
      if [[ $(head -c 4 "$file" | tail -c 3) == ELF ]]; then echo "$file"; fi
    done
}
mapfile -t built < <(elves "$tree")
strip --strip-unneeded "${built[@]}"

# Writes a program's --help as a manual page.
manual() {
  local program
  program=$(basename "$1")
  printf '.TH %s 1 "" "ballast %s" ""\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n' \
    "${program^^}" "$version" "$program" "data loader service for training"
  "$1" --help | sed 's/\\/\\e/g; s/-/\\-/g; s/^\./\\\&./'
}

# Files in dist are complete, even if this script is interrupted.
finish() {
  cp "$work/$1" "$out/$1.part"
  mv "$out/$1.part" "$out/$1"
  echo "$out/$1"
}

tarball() {
  local top file brought helpers
  top=$work/$name-$version-linux-$(uname -m)
  cp -a "$tree" "$top"
  mkdir -p "$top/lib"
  cp LICENSE "$top/"
  # The Python package looks here first: PYTHONPATH=…/python is all it needs.
  [[ -n $only ]] || ln -s ../../lib "$top/python/ballast/lib"
  # All libraries except the C library, which must be the machine's, and with it the
  # C++ library (Debian 12's needs its own glibc), the driver, and those that PyTorch
  # brings.
  mapfile -t helpers < <(deploy/helper_libraries.sh "$top/lib/ballast/helpers" \
    "$top/bin/ballast-server")
  ((${#helpers[@]} > 0)) || return 1  # it has said why
  mapfile -t brought < <(ldd "${built[@]}" "$top"/lib/ballast/helpers/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s)|libcuda|libnvidia-[^/]*|libnccl)\.so[^/]*$' |
    grep -vF "$tree/")
  install -m 644 -t "$top/lib" "${brought[@]}"
  deploy/licences.sh "$top/licences" "${brought[@]}" "${helpers[@]}"
  deploy/own_ibverbs.sh "$top/lib"
  elves "$top" | while read -r file; do
    # Programs and libraries find the libraries next to them.
    patchelf --force-rpath --set-rpath \
      "\$ORIGIN/$(realpath --relative-to="$(dirname "$file")" "$top/lib")" "$file"
  done
  python3 deploy/symbol_versions.py --lower "$top"
  python3 deploy/symbol_versions.py "$top" >"$work/versions" || {
    cat "$work/versions" >&2
    echo "package.sh: the tarball would not run on a distribution (above)" >&2
    return 1
  }
  file=$(basename "$top").tar.gz
  tar --create --use-compress-program "gzip -n$effort" --file "$work/$file" --directory "$work" \
    --owner=0 --group=0 --sort=name --mtime="@$SOURCE_DATE_EPOCH" "$(basename "$top")"
  finish "$file"
}

deb() {
  local root=$work/deb control=$work/deb/DEBIAN depends helpers_depend file libraries brought helpers
  mkdir -p "$root/usr" "$control" "$work/debian"
  cp -a "$tree/." "$root/usr/"
  if [[ -z $only ]]; then
    mkdir -p "$root/usr/lib/python3"
    mv "$root/usr/python" "$root/usr/lib/python3/dist-packages"
  fi
  install -D -m 644 -t "$root/lib/systemd/system" deploy/systemd/ballast-server.service
  install -D -m 644 deploy/systemd/ballast.sysusers "$root/usr/lib/sysusers.d/ballast.conf"
  install -d "$root/etc/ballast" "$root/usr/share/man/man1" \
    "$root/usr/share/lintian/overrides"
  install -m 644 deploy/debian/lintian-overrides "$root/usr/share/lintian/overrides/$name"
  sed -i "s/^ballast:/$name:/" "$root/usr/share/lintian/overrides/$name"
  for file in "$tree"/bin/*; do
    manual "$file" | gzip -9n >"$root/usr/share/man/man1/$(basename "$file").1.gz"
  done
  if [[ -z $only ]]; then
    chmod 644 "$root"/usr/lib/*.so.1
    echo "activate-noawait ldconfig" >"$control/triggers"
    echo "libballast_shim 1 $name (>= $version)" >"$control/shlibs"
  fi
  {
    echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    echo
    echo "Files: *"
    echo "Copyright: 2026 The Ballast authors"
    echo "License: Apache-2.0"
    echo " On Debian systems the licence is in /usr/share/common-licenses/Apache-2.0."
    echo "Comment: The licences of compiled-in and bundled software are in licences/, in"
    echo " the folder of this file."
  } >"$root/usr/share/doc/$name/copyright"
  {
    echo "$name ($version) unstable; urgency=medium"
    echo
    echo "  * Release $version: see README.md and docs/ in the folder of this file."
    echo
    echo " -- The Ballast authors <maintainers@ballast.invalid>  $(date -uR -d "@$SOURCE_DATE_EPOCH")"
  } | gzip -9n >"$root/usr/share/doc/$name/changelog.gz"
  # Debian has no Arrow.
  mapfile -t brought < <(ldd "$tree/bin/ballast-server" |
    awk '$1 ~ /^lib(arrow|arrow_s3|parquet)\.so/ {print $3}')
  ((${#brought[@]} == 0)) || install -D -m 644 -t "$root/usr/lib/ballast" "${brought[@]}"
  # Of the helpers' libraries Debian has all but FFmpeg, which the server holds.
  mapfile -t helpers < <(deploy/helper_libraries.sh "$work/unused" "$tree/bin/ballast-server" |
    grep '/LICENSE$')
  deploy/licences.sh "$root/usr/share/doc/$name/licences" "${brought[@]}" "${helpers[@]}"
  # Debian's libraries are in the system's path, CUDA's where the toolkit is, Arrow's
  # in a folder of ours.
  elves "$root/usr" | while read -r file; do
    # Not "ldd | grep -q", which ends before ldd does: with pipefail, a match that
    # breaks the pipe counts as none.
    libraries=$(ldd "$file")
    if [[ $file == */lib/ballast/* ]]; then
      patchelf --set-rpath '$ORIGIN' "$file"
    elif [[ $libraries == *libarrow* ]]; then
      patchelf --set-rpath '$ORIGIN/../lib/ballast' "$file"
    elif [[ $libraries == *libcudart* ]]; then
      patchelf --set-rpath /usr/local/cuda/lib64 "$file"
    else
      patchelf --remove-rpath "$file"
    fi
  done
  # Derived from the programs' libraries. dpkg-shlibdeps needs a source package.
  printf 'Source: %s\n\nPackage: %s\nArchitecture: any\n' "$name" "$name" >"$work/debian/control"
  depends=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info \
    -x"$name" "${built[@]}" 2>"$work/shlibdeps.log" |
    sed -n 's/^shlibs:Depends=//p')
  if [[ -z $depends ]]; then
    cat "$work/shlibdeps.log" >&2
    echo "package.sh: dpkg-shlibdeps found no dependencies; its log is above" >&2
    return 1
  fi
  {
    echo "Package: $name"
    echo "Version: $version"
    echo "Architecture: $arch"
    echo "Maintainer: The Ballast authors <maintainers@ballast.invalid>"
    echo "Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)"
    # What the server's helpers load: dpkg-shlibdeps does not see them. A trainer's
    # image takes the whole package without what is recommended, and gets no decoder.
    helpers_depend="libdav1d6, libsentencepiece0, libsndfile1, libsoxr0"
    ((${#helpers[@]} > 0)) || helpers_depend+=", libavcodec59, libavformat59, libswscale6"
    if [[ -z $only ]]; then
      echo "Depends: $depends"
      echo "Recommends: $helpers_depend, python3"
      echo "Conflicts: ballast-server"
    else
      echo "Depends: $depends, $helpers_depend"
      echo "Conflicts: ballast"
    fi
    echo "Section: science"
    echo "Priority: optional"
    echo "Description: data loader service for vision-language training"
    echo " Loader servers, one a node, read, decode, tokenise and shard images and"
    echo " text so that every sample is read once in the whole cluster, and publish"
    echo " who trains on what before a byte moves."
  } >"$control/control"
  install -m 755 deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$control/"
  find "$root" -type d -exec chmod 755 {} +
  (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z |
    xargs -0 md5sum) >"$control/md5sums"
  file=${name}_${version}_$arch.deb
  dpkg-deb --root-owner-group "-Z$format" "-z$effort" --build "$root" "$work/$file" >/dev/null
  finish "$file"
}

[[ -n $only ]] || tarball
[[ -n ${BALLAST_SYSROOT:-} ]] || deb
