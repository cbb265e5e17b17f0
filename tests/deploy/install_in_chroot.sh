#!/usr/bin/env bash
# Does what the second stage of deploy/container/*.Dockerfile does, without a
# container engine: installs a package into a bare Debian 12 and serves from it
# as an unprivileged user. Needs root, debootstrap and a Debian mirror; not part
# of tests/run.sh.
#
#   tests/deploy/install_in_chroot.sh dist/ballast_1.0.0_amd64.deb [DIR]
#
# DIR: a chroot to keep and reuse; without it one is made and removed.
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
if (($# < 1)); then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
deb=$(realpath "$1")
root=${2:-}
if [[ -z $root ]]; then
  root=$(mktemp -d)
  trap 'rm -rf --one-file-system "$root"' EXIT
fi
[[ -x $root/usr/bin/apt-get ]] ||
  debootstrap --variant=minbase bookworm "$root" http://deb.debian.org/debian >/dev/null
cp "$deb" "$root/tmp/package.deb"
cp /etc/resolv.conf "$root/etc/"
cat >"$root/tmp/check.sh" <<'END'
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
apt-get install -y -q --no-install-recommends --reinstall /tmp/package.deb >/tmp/apt.log 2>&1 ||
  { cat /tmp/apt.log >&2; exit 1; }
id loader >/dev/null 2>&1 ||
  { groupadd --gid 10001 loader && useradd --uid 10001 --gid 10001 --no-create-home loader; }
rm -rf /tmp/work && install -d -o loader -g loader /tmp/work
cat >/tmp/serve.sh <<'SERVE'
set -eu
ballast-server --version
ballast-server make-corpus --out /tmp/work/data --samples 32 --preset text
ballast-server index --config /tmp/work/data/ballast.yaml
ballast-server serve --config /tmp/work/data/ballast.yaml --listen unix:/tmp/work/a.sock &
server=$!
ballastctl --server unix:/tmp/work/a.sock health --wait 60
ballastctl --server unix:/tmp/work/a.sock pull --module language --dp-rank 0 --step 0 --steps 1
kill $server
wait $server
SERVE
setpriv --reuid 10001 --regid 10001 --clear-groups sh /tmp/serve.sh
END
# The loader finds what lies beside a program ($ORIGIN) by /proc. A mount namespace of
# its own: nothing is left mounted.
unshare --mount sh -eu -c 'mount -t proc proc "$1/proc"; chroot "$1" sh /tmp/check.sh' sh "$root"
echo "installed and served from: $(basename "$deb")"
