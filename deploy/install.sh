#!/usr/bin/env bash
# Installs what a trainer links: libballast_shim.so, its headers, and its files
# for pkg-config and CMake (docs/c_api.md).
#
#   deploy/install.sh [--prefix DIR] [--destdir DIR] [--library FILE]
#
#   --prefix DIR    the target; /usr/local by default. The installed tree does not
#                   refer to it and may be moved as a whole.
#   --destdir DIR   prepended to the prefix, for packages
#   --library FILE  a libballast_shim.so.1 that is already built; otherwise Bazel
#                   builds it
#
#   lib/libballast_shim.so.1, lib/libballast_shim.so
#   lib/ballast/                    libraries of Debian's that only the shim loads
#   lib/pkgconfig/ballast_shim.pc
#   lib/cmake/ballast_shim/
#   include/ballast/trainer_shim/c_api/, and trainer_shim/c_api.h that includes it
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
cd "$(dirname "$0")/.."

prefix=/usr/local
destdir=
library=
while (($# > 0)); do
  case $1 in
    --prefix | --destdir | --library)
      if (($# < 2)); then
        echo "install.sh: $1 wants a value" >&2
        exit 2
      fi
      declare "${1#--}=$2"
      shift 2
      ;;
    *)
      sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
      exit 2
      ;;
  esac
done

if [[ -z $library ]]; then
  target=//trainer_shim/c_api:libballast_shim.so.1
  bazel build --noshow_progress --config=opt "$target"
  library=$(bazel info --noshow_progress --config=opt bazel-bin)
  library+=/trainer_shim/c_api/libballast_shim.so.1
fi

readonly root=$destdir$prefix
version=$(sed -n 's/.*kVersion\[\] = "\(.*\)";/\1/p' common/build_info.h)
mkdir -p "$root"/{lib/{ballast,pkgconfig,cmake/ballast_shim},include/ballast/trainer_shim/c_api}

install -m 755 "$library" "$root/lib/libballast_shim.so.1"
strip --strip-unneeded "$root/lib/libballast_shim.so.1"
ln -sf libballast_shim.so.1 "$root/lib/libballast_shim.so"
# All other libraries are in every system; a second version of them in one
# process would clash.
ldd "$library" |
  awk '/lib(absl_|protobuf|re2|gloo|hiredis|ibverbs|nl-)[^ ]*\.so/ {print $3}' |
  xargs install -m 644 -t "$root/lib/ballast"
deploy/own_ibverbs.sh "$root/lib/ballast"
install -m 644 -t "$root/include/ballast/trainer_shim/c_api" trainer_shim/c_api/c_api*.h
# The short path that trainers include.
echo '#include "trainer_shim/c_api/c_api.h"' \
  >"$root/include/ballast/trainer_shim/c_api.h"
sed "s/@VERSION@/$version/" trainer_shim/c_api/ballast_shim.pc.in \
  >"$root/lib/pkgconfig/ballast_shim.pc"
for name in ballast_shim-config ballast_shim-config-version; do
  sed "s/@VERSION@/$version/" "trainer_shim/c_api/$name.cmake.in" \
    >"$root/lib/cmake/ballast_shim/$name.cmake"
done
echo "libballast_shim $version is in $root"
