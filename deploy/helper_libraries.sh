#!/usr/bin/env bash
# Copies the libraries that the server's helpers are linked with into a folder, which a
# package brings as lib/ballast/helpers: for video, SentencePiece and audio. Prints
# their places in the system, for deploy/licences.sh. What these need in turn is not
# among them.
#
#   deploy/helper_libraries.sh DIR SERVER
#
#   SERVER  ballast-server. Built with --config=ffmpeg, as releases are, it holds FFmpeg,
#           whose licence is then printed, too. Otherwise it says that it needs Debian's
#
# package_test holds the helpers against the list.
set -euo pipefail
if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
if (($# != 2)); then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit 2
fi
mkdir -p "$1"
for library in libdav1d.so.6 libsentencepiece.so.0 libsndfile.so.1 libsoxr.so.0; do
  place=$(gcc -print-file-name="$library")
  [[ $place == /* ]] || {
    echo "helper_libraries.sh: found no $library; deploy/setup.sh installs it" >&2
    exit 1
  }
  install -m 755 "$place" "$1/$library"
  echo "$place"
done
if grep -qa 'libavcodec\.so\.' "$2"; then
  echo "helper_libraries.sh: $2 is built without --config=ffmpeg: videos and M4A need" \
    "Debian 12's libavcodec59, libavformat59 and libswscale6 where it is installed" >&2
else
  echo "${FFMPEG_PATH:-$HOME/.local/share/ballast/ffmpeg}/LICENSE"
fi
