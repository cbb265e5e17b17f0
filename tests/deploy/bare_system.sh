#!/usr/bin/env bash
# Installs a wheel in a fresh bare system that has Python and nothing else of ours:
# goes from `pip install` to the first packed batch on drawn receipts, then decodes
# videos and audio of each kind, tokenises with SentencePiece and serves a job of
# videos. For root, with debootstrap and ffmpeg; no test target, since it fetches a
# system.
#
#   tests/deploy/bare_system.sh WHEEL [SUITE [MIRROR]]
#
#   tests/deploy/bare_system.sh dist/ballast_loader-*.whl
#   tests/deploy/bare_system.sh dist/ballast_loader-*.whl trixie
#   tests/deploy/bare_system.sh dist/ballast_loader-*.whl jammy http://archive.ubuntu.com/ubuntu
#
# The last line hashes all frames, features and tokens: it is the same in every system.
# BARE_ROOT names a system that is there and is kept.
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
if (($# < 1)); then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit 2
fi
wheel=$(realpath "$1")
suite=${2:-bookworm}
readonly most_seconds=120
cd "$(dirname "$0")/../.."

root=${BARE_ROOT:-}
if [[ -z $root ]]; then
  root=$(mktemp -d)
  trap 'rm -rf --one-file-system "$root"' EXIT
fi
# Ubuntu has python3-venv in universe.
components=main
[[ ${3:-} != */ubuntu* ]] || components=main,universe
[[ -e $root/usr/bin/python3 ]] ||
  debootstrap --variant=minbase --components=$components --include=python3,python3-venv \
    "$suite" "$root" ${3:+"$3"} >/dev/null
rm -rf "$root/work"
mkdir -p "$root/work/drawn" "$root/work/media"
cp "$wheel" tests/server/text/sentencepiece/testdata/llama.model "$root/work/"

# media FILE INPUT ARGUMENT...
media() { ffmpeg -nostdin -loglevel error -f lavfi -i "$2" "${@:3}" "$root/work/media/$1"; }
readonly picture=testsrc2=size=322x242:rate=30:duration=2
media h264.mp4 $picture -c:v libx264 -bf 3 -pix_fmt yuv420p
media hevc10.mp4 $picture -c:v libx265 -x265-params log-level=none -pix_fmt yuv420p10le
media vp9.webm $picture -vf crop=161:121:exact=1 -c:v libvpx-vp9 -deadline realtime -pix_fmt yuv420p
media vp8.webm $picture -c:v libvpx -pix_fmt yuv420p
media av1.mkv $picture -c:v libsvtav1 -preset 12 -pix_fmt yuv420p 2>/dev/null
media mpeg4.avi $picture -c:v mpeg4 -q 5
media mpeg2.ts $picture -c:v mpeg2video -q 5
media jpeg.mov $picture -c:v mjpeg -q 5 -pix_fmt yuvj420p
readonly tone="aevalsrc='0.4*sin(400*t*t)|0.3*sin(2000*t)':s=44100:d=2"
for file in audio.{wav,flac,mp3,ogg,m4a}; do media $file "$tone"; done
media audio.opus "$tone" -c:a libopus

cat >"$root/work/go.sh" <<'INSIDE'
set -euo pipefail
cd /work
SECONDS=0
python3 -m venv venv
venv/bin/pip install --quiet --no-index ballast_loader-*.whl
venv/bin/ballast-server make-corpus --out drawn --samples 32 --preset receipts
rm drawn/ballast.yaml
venv/bin/ballast-server init drawn
cat >first.py <<'PYTHON'
import ballast

with ballast.serve("ballast.yaml") as address:
    with ballast.Loader(address, device="cpu", array="dlpack") as loader:
        batch = next(loader)
print("first batch: %d tokens, %d patches" % (
    batch["input_ids"].shape[1], batch["pixel_values"].shape[0]))
PYTHON
venv/bin/python first.py
echo "$SECONDS s from pip install to the first packed batch"
((SECONDS <= $1))
venv/bin/ballast-server inspect helpers
mkdir films
cp media/*.* films/ && rm films/audio.*
for film in $(ls films/*); do
  printf '{"video": "%s", "messages": [{"role": "user", "content": "<video>What is it?"}, %s]}\n' \
    "$film" '{"role": "assistant", "content": "A test."}'
done >all.jsonl && mv all.jsonl films/
rm ballast.yaml
venv/bin/ballast-server init films
venv/bin/python - <<'PYTHON'
import subprocess
import ballast

with ballast.serve("ballast.yaml") as address:
    with ballast.Loader(address, device="cpu", array="dlpack") as loader:
        batch = next(loader)
    told = subprocess.run(["venv/bin/ballastctl", "--server", address, "doctor"],
                          stdout=subprocess.PIPE, text=True)
print("batch of videos: %d tokens, %d patches" % (
    batch["input_ids"].shape[1], batch["pixel_values_videos"].shape[0]))
print(told.stdout)
assert told.returncode == 0 and "videos: can be read here" in told.stdout
PYTHON
{
  venv/bin/ballast-server inspect video --model qwen2_5_vl films/*.{mp4,webm,mkv,avi,ts,mov}
  venv/bin/ballast-server inspect audio --model qwen2_audio media/audio.*
  echo '{"text": "Grüße, 你好 and hello world"}' |
    venv/bin/ballast-server inspect text --tokenizer llama.model
} >all.json
if grep '"error"' all.json; then exit 1; fi
cat /etc/os-release | sed -n 's/^PRETTY_NAME=//p'
echo "frames, features and tokens: $(sha256sum <all.json)"
INSIDE
# A mount namespace of its own: nothing is left mounted.
unshare --mount bash -euo pipefail -c '
  mount -t proc proc "$1/proc"
  mkdir -p "$1/dev/shm"
  mount -t tmpfs tmpfs "$1/dev/shm"
  chroot "$1" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root bash /work/go.sh "$2"
' bash "$root" "$most_seconds"
