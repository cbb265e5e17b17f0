#!/usr/bin/env bash
# Builds for aarch64 on another machine, and runs tests of it under qemu.
#
#   deploy/aarch64.sh build|test [OPTION...] TARGET...
#   deploy/aarch64.sh run COMMAND...
#
#   deploy/aarch64.sh test //tests/proto/... //tests/server/media/image:image_test
#   deploy/aarch64.sh run deploy/wheel.sh          # as deploy/wheel.sh --arch aarch64
#
# Fetches, once, the libraries of deploy/setup.sh for arm64 and qemu out of Debian 12,
# by apt and the keys of Debian, and unpacks them into ~/.local/share/ballast/aarch64
# or AARCH64_PATH; nothing is installed. Clang compiles for either processor. Without
# CUDA. `run` gives a script the tools that answer for aarch64 (bazel, clang, ldd,
# strip, uname and others).
#
# Programs that a test starts, such as helpers, run where the kernel gives ARM's to qemu
# with the descriptor of the file (binfmt_misc, flag O; Debian's package
# qemu-user-static sees to it) and the link /etc/qemu-binfmt/aarch64 leads to
# AARCH64_PATH/root. qemu cannot fork as SentencePiece's helper does.
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
recipe=$(cat "$0" "$(dirname "$0")/setup.sh" | sha256sum)
if (($# < 2)) || [[ $1 != build && $1 != test && $1 != run ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit 2
fi
cd "$(dirname "$0")/.."
fail() { echo "aarch64.sh: $*" >&2; exit 1; }
root=${AARCH64_PATH:-${HOME:?"aarch64.sh: HOME is unset; set AARCH64_PATH"}/.local/share/ballast/aarch64}
for program in clang ld.lld llvm-{ar,nm,objcopy,ranlib,strip}-14; do
  command -v "$program" >/dev/null || fail "no $program: apt-get install clang lld llvm"
done

# fetch ARCHITECTURE FOLDER OPTION... PACKAGE...: the packages' files, without dpkg.
fetch() {
  local architecture=$1 folder=$2 uri
  shift 2
  mkdir -p "$folder/lists/partial" "$folder/archives/partial"
  : >"$folder/status"
  uri=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
  echo "deb [arch=$architecture signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
    "${uri:-http://deb.debian.org/debian} bookworm main" >"$folder/sources.list"
  local options=(-o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture"
    -o APT::Install-Recommends=0 -o APT::Sandbox::User=root -o Debug::NoLocking=1
    -o "Dir::State::status=$folder/status" -o "Dir::State::lists=$folder/lists"
    -o "Dir::Cache::archives=$folder/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
    -o "Dir::Etc::sourcelist=$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null)
  apt-get "${options[@]}" -qq update
  apt-get "${options[@]}" -qq install -y --download-only "$@"
}

make() {
  local file package libraries
  mkdir -p "$(dirname "$root")"
  work=$(mktemp -d "$root.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mapfile -t libraries < <(deploy/setup.sh --list | grep -xE '(lib|nlohmann|prometheus).*-dev')
  {
    fetch arm64 "$work/target" libc6-dev libdav1d-dev libstdc++-12-dev zlib1g-dev \
      "${libraries[@]}" &&
      fetch "$(dpkg --print-architecture)" "$work/host" qemu-user-static
  } >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "apt-get could not fetch the packages"; }
  mkdir -p "$work/tree/root/var/lib/dpkg/info" "$work/tree/bin"
  # Unpacked with a list of which file is whose, for deploy/licences.sh.
  for file in "$work"/target/archives/*.deb; do
    dpkg-deb --extract "$file" "$work/tree/root"
    package=$(dpkg-deb --field "$file" Package)
    dpkg-deb --fsys-tarfile "$file" | tar --list | sed 's/^\.//; s|/$||; s|^$|/.|' \
      >"$work/tree/root/var/lib/dpkg/info/$package.list"
    { dpkg-deb --field "$file"; echo "Status: install ok installed"; echo; } \
      >>"$work/tree/root/var/lib/dpkg/status"
  done
  dpkg-deb --extract "$work"/host/archives/qemu-user-static_*.deb "$work/qemu"
  mv "$work/qemu/usr/bin/qemu-aarch64-static" "$work/tree/bin/"
  # As on a machine: /lib is /usr/lib, and a library's name leads into this tree.
  cp -a "$work/tree/root/lib/." "$work/tree/root/usr/lib/"
  rm -r "$work/tree/root/lib"
  ln -s usr/lib "$work/tree/root/lib"
  find "$work/tree/root/usr/lib" -lname '/*' -print0 | while IFS= read -r -d '' file; do
    ln -sfnr "$work/tree/root$(readlink "$file")" "$file"
  done
  cat >"$work/tree/bin/clang" <<'CLANG'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
# Bazel refuses the folder that third_party/opencv.bzl names unless the compiler lists
# it; headers are found in the other one.
exec /usr/bin/clang --target=aarch64-linux-gnu --sysroot="$here/../root" -fuse-ld=lld \
  -isystem "$here/../root/usr/include/opencv4" -idirafter /usr/include/opencv4 "$@"
CLANG
  chmod +x "$work/tree/bin/clang"
  ln -s clang "$work/tree/bin/gcc"
  for file in ar nm objcopy ranlib strip; do
    ln -s "$(command -v "llvm-$file-14")" "$work/tree/bin/$file"
  done
  # What `-fuse-ld=bfd` finds for this processor.
  printf '#!/bin/sh\nexec /usr/bin/ld.lld "$@"\n' >"$work/tree/bin/aarch64-linux-gnu-ld.bfd"
  cat >"$work/tree/bin/uname" <<'UNAME'
#!/bin/sh
if [ "$*" = -m ]; then echo aarch64; else exec /usr/bin/uname "$@"; fi
UNAME
  cat >"$work/tree/bin/ldd" <<'LDD'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
for file; do
  echo "$file:"
  "$here/qemu-aarch64-static" -L "$here/../root" "$here/../root/lib/ld-linux-aarch64.so.1" \
    --list "$file" | sed "s| => \(/usr\)*/lib/| => ${here%/bin}/root/usr/lib/|"
done
LDD
  # A separate output base: the build results of the native machine are kept.
  cat >"$work/tree/bin/bazel" <<'BAZEL'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
command=$1
shift
# Bazel itself is the machine's.
PATH=${PATH#"$here:"} exec /usr/bin/bazel \
  "--output_base=${AARCH64_OUTPUT:-${XDG_CACHE_HOME:-$HOME/.cache}/ballast-aarch64}" "$command" \
  --config=clang --config=nocuda --cpu=aarch64 --host_cpu=aarch64 \
  --experimental_convenience_symlinks=ignore "--repo_env=CC=$here/clang" \
  "--action_env=PATH=$here:/usr/local/bin:/usr/bin:/bin" "$@"
BAZEL
  chmod +x "$work"/tree/bin/{aarch64-linux-gnu-ld.bfd,bazel,ldd,uname}
  echo "${recipe%% *}" >"$work/tree/recipe_sha256"
  chmod -R a+rX "$work/tree"
  # Renamed at the end: an interrupted run leaves no half-filled folder.
  rm -rf "$root"
  mv -T "$work/tree" "$root"
  rm -rf "$work"
}
if [[ $(cat "$root/recipe_sha256" 2>/dev/null) != "${recipe%% *}" ]]; then
  [[ ! -e $root || -e $root/recipe_sha256 ]] ||
    fail "$root is not a folder that aarch64.sh made; remove it, or set AARCH64_PATH to another"
  echo "aarch64.sh: unpacking Debian 12 for arm64 into $root"
  make
fi

command=$1
shift
export PATH=$root/bin:$PATH BALLAST_SYSROOT=$root/root ARROW_PATH=$root/arrow \
  FFMPEG_PATH=$root/ffmpeg AUDITWHEEL_LD_LIBRARY_PATH=$root/root/usr/lib/aarch64-linux-gnu
[[ $command != run ]] || exec "$@"
deploy/setup.sh
[[ $command != test ]] ||
  set -- "--run_under=$root/bin/qemu-aarch64-static -L $root/root" "$@"
exec bazel "$command" "$@"
