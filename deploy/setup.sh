#!/usr/bin/env bash
# Installs the packages of Debian 12 that Ballast is built with, and nothing
# else. Safe to repeat: prints nothing if none is missing. Uses sudo unless it
# runs as root.
#
#   deploy/setup.sh            install what is missing
#   deploy/setup.sh --tests    also programs that only tests use: without promtool
#                              alerts_test fails, without ip and nft those of
#                              tests/cluster, without Chromium and Prometheus
#                              parts of metrics_test are skipped
#   deploy/setup.sh --list     print the packages, one a line, without those of tests
set -euo pipefail

packages=(
  # Compiler and build.
  bazel-bootstrap
  bazel-rules-java
  bazel-rules-proto
  g++
  git
  # gRPC and Protocol Buffers.
  libgrpc++-dev
  libprotobuf-dev
  protobuf-compiler
  protobuf-compiler-grpc
  # Other libraries.
  libabsl-dev
  libbenchmark-dev
  libcivetweb-dev
  libcli11-dev
  libeigen3-dev
  libgloo-dev
  libgmock-dev
  libgtest-dev
  libhwy-dev
  libjpeg62-turbo-dev
  libpcre2-dev
  libpng-dev
  libsentencepiece-dev
  libsimdjson-dev
  libssl-dev
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
  iproute2
  nftables
  prometheus
)

if [[ ${1:-} == --list ]]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi
if [[ ${1:-} == --tests ]]; then
  packages+=("${test_packages[@]}")
  shift
fi
if [[ $# -gt 0 ]]; then
  echo "setup.sh: unknown argument \"$1\"; see the head of $0" >&2
  exit 2
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" \
    2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

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
