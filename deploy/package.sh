#!/usr/bin/env bash
# Builds what is given to others, into dist/:
#
#   ballast-VERSION-linux-ARCH.tar.gz  relocatable: unpack it anywhere on a Linux
#                                      with glibc 2.36 or newer; brings its libraries
#   ballast_VERSION_ARCH.deb           Debian 12: server, tools, shim, headers,
#                                      Python package, systemd unit, pages
#
#   deploy/package.sh [--only server] [--cuda] [--out DIR] [--from DIR]
#
# --only server: the server and its tools alone, as ballast-server_….deb and no
# tarball. --cuda: a missing CUDA toolkit is an error (without it the shim is for
# hosts alone). --out: in the place of dist. --from: takes the programs from a
# tree that `deploy/install.sh` has filled, and builds nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

only=
out=dist
from=
options=(--config=opt)
usage() { sed -n '2,17s/^# \{0,1\}//p' "$0"; }
while (($# > 0)); do
  case $1 in
    --only) only=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --from) from=$(realpath "$2"); shift 2 ;;
    --cuda) options+=(--config=cuda); shift ;;
    --help | -h) usage; exit 0 ;;
    *) echo "package.sh: unknown argument \"$1\"" >&2; usage >&2; exit 2 ;;
  esac
done
if [[ -n $only && $only != server ]]; then
  echo "package.sh: --only $only; wanted server" >&2
  exit 2
fi
[[ -n $from ]] || deploy/setup.sh

version=$(sed -n 's/.*kVersion\[\] = "\(.*\)";/\1/p' common/build_info.h)
arch=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
out=$(realpath "$out")
name=ballast${only:+-$only}

# bin/, lib/, include/, … as under /usr.
tree=$work/tree
if [[ -n $from ]]; then
  cp -a "$from" "$tree"
elif [[ $only == server ]]; then
  bazel build --noshow_progress "${options[@]}" //server:ballast-server //client/ballastctl
  bin=$(bazel info --noshow_progress "${options[@]}" bazel-bin)
  install -D -m 755 -t "$tree/bin" "$bin/server/ballast-server" \
    "$bin/client/ballastctl/ballastctl"
else
  deploy/install.sh --prefix "$tree" "${options[@]}"
fi

# What is not a program.
share() {
  local root=$1
  install -D -m 644 -t "$root/share/ballast/deploy/kubernetes" deploy/kubernetes/*.yaml
  install -D -m 644 -t "$root/share/ballast/deploy/slurm" deploy/slurm/ballast.sbatch
  install -D -m 644 -t "$root/share/ballast/deploy/systemd" deploy/systemd/*
  install -D -m 644 -t "$root/share/ballast" deploy/ballast.yaml
  (cd docs && find . -name '*.md' -o -name '*.svg' -o -name '*.png') |
    while read -r page; do install -D -m 644 "docs/$page" "$root/share/doc/$name/docs/$page"; done
  install -D -m 644 -t "$root/share/doc/$name" README.md
}
share "$tree"

# The programs and libraries of a tree.
elves() {
  find "$1" -type f \( -perm -100 -o -name '*.so*' \) -print0 |
    while IFS= read -r -d '' file; do
      if [[ $(head -c 4 "$file" | tail -c 3) == ELF ]]; then echo "$file"; fi
    done
}
mapfile -t programs < <(elves "$tree")
strip --strip-unneeded "${programs[@]}"

tarball() {
  local top file
  top=$work/$name-$version-linux-$(uname -m)
  cp -a "$tree" "$top"
  mkdir -p "$top/lib"
  cp LICENSE "$top/"
  # All but the C library, which must be the machine's, the driver, and what
  # PyTorch brings.
  ldd "${programs[@]}" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv)|libcuda|libnvidia-[^/]*|libnccl)\.so[^/]*$' |
    grep -vF "$tree/" | xargs -r install -m 644 -t "$top/lib"
  elves "$top" | while read -r file; do
    # Programs find the libraries beside them, and libraries those beside them.
    patchelf --force-rpath --set-rpath \
      "\$ORIGIN/$(realpath --relative-to="$(dirname "$file")" "$top/lib")" "$file"
  done
  tar --create --gzip --file "$out/$(basename "$top").tar.gz" --directory "$work" \
    --owner=0 --group=0 --sort=name "$(basename "$top")"
  echo "$out/$(basename "$top").tar.gz"
}

deb() {
  local root=$work/deb control=$work/deb/DEBIAN depends file
  mkdir -p "$root/usr" "$control" "$work/debian"
  cp -a "$tree/." "$root/usr/"
  rm -f "$root/usr/LICENSE"
  install -D -m 644 -t "$root/lib/systemd/system" deploy/systemd/ballast-server.service
  install -D -m 644 deploy/systemd/ballast.sysusers "$root/usr/lib/sysusers.d/ballast.conf"
  install -d "$root/etc/ballast"
  {
    echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    echo
    echo "Files: *"
    echo "Copyright: The Ballast authors"
    echo "License: Apache-2.0"
    echo " On Debian systems the licence is in /usr/share/common-licenses/Apache-2.0."
  } >"$root/usr/share/doc/$name/copyright"
  {
    echo "$name ($version) unstable; urgency=medium"
    echo
    echo "  * Release $version: README.md and docs/ beside this file say what it does."
    echo
    echo " -- The Ballast authors <maintainers@ballast.invalid>  $(date -uR -d "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}")"
  } | gzip -9n >"$root/usr/share/doc/$name/changelog.gz"
  # By what the programs are linked with. dpkg-shlibdeps wants a source package.
  printf 'Source: %s\n\nPackage: %s\nArchitecture: any\n' "$name" "$name" >"$work/debian/control"
  depends=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info \
    -l"$root/usr/lib" "${programs[@]}" 2>"$work/shlibdeps.log" |
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
    echo "Depends: $depends"
    if [[ -z $only ]]; then
      echo "Recommends: python3"
      echo "Conflicts: ballast-server"
    else
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
  file=$out/${name}_${version}_$arch.deb
  dpkg-deb --root-owner-group --build "$root" "$file" >/dev/null
  echo "$file"
}

[[ -n $only ]] || tarball
deb
