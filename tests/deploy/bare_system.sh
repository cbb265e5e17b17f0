#!/usr/bin/env bash
# Installs a wheel in a fresh bare system that has Python and nothing else of ours,
# and goes from `pip install` to the first packed batch on drawn receipts. For root,
# with debootstrap; no test target, since it fetches a system.
#
#   tests/deploy/bare_system.sh WHEEL [SUITE [MIRROR]]
#
#   tests/deploy/bare_system.sh dist/ballast-*.whl
#   tests/deploy/bare_system.sh dist/ballast-*.whl jammy http://archive.ubuntu.com/ubuntu
set -euo pipefail
if (($# < 1)); then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit 2
fi
wheel=$(realpath "$1")
suite=${2:-bookworm}
readonly most_seconds=120

root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
debootstrap --variant=minbase --include=python3,python3-venv "$suite" "$root" \
  ${3:+"$3"} >/dev/null
mkdir -p "$root/work/drawn"
cp "$wheel" "$root/work/"
cat >"$root/work/go.sh" <<'INSIDE'
set -euo pipefail
cd /work
SECONDS=0
python3 -m venv venv
venv/bin/pip install --quiet --no-index ballast-*.whl
venv/bin/ballast-server make-corpus --out drawn --samples 32 --preset receipts
rm drawn/ballast.yaml
venv/bin/ballast-server init drawn
venv/bin/python - <<'PYTHON'
import ballast

with ballast.serve("ballast.yaml") as address:
    with ballast.Loader(address, device="cpu", array="dlpack") as loader:
        batch = next(loader)
print("first batch: %d tokens, %d patches" % (
    batch["input_ids"].shape[1], batch["pixel_values"].shape[0]))
PYTHON
echo "$SECONDS s from pip install to the first packed batch"
exit $((SECONDS > $1))
INSIDE
# A mount namespace of its own: nothing is left mounted.
unshare --mount bash -euo pipefail -c '
  mount -t proc proc "$1/proc"
  mkdir -p "$1/dev/shm"
  mount -t tmpfs tmpfs "$1/dev/shm"
  chroot "$1" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root bash /work/go.sh "$2"
' bash "$root" "$most_seconds"
