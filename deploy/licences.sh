#!/usr/bin/env bash
# Copies the licences of what a package holds besides our own code into a folder, one
# file for each Debian package or other origin, and lists these with their versions in
# the file VERSIONS there (deploy/release.sh makes a bill of materials of it).
#
#   deploy/licences.sh DIR [LIBRARY...]
#
#   DIR        created if need be
#   LIBRARY    a library that the package brings, at the place where the system has it,
#              or the LICENSE of deploy/ffmpeg.sh
#
# What is compiled into our programs is always among them. Fails, naming it, if the
# licence of a library cannot be found.
set -euo pipefail
if (($# == 0)) || [[ $1 == --help || $1 == -h ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit $(($# == 0 ? 2 : 0))
fi
folder=$1
shift
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Where the libraries of another processor and the lists of their packages are.
readonly system=${BALLAST_SYSROOT:-}

# copy FILE NAME VERSION
copy() {
  install -m 644 "$1" "$folder/$2"
  echo "$2 $3" >>"$folder/VERSIONS"
}

# Compiled into our programs: static libraries, and headers with code.
compiled_in=("$system"/usr/include/{CLI/CLI.hpp,boost/version.hpp,eigen3/Eigen/Core,nlohmann/json.hpp}
  "$(gcc -print-file-name=libopencv_core.a)")
files=("${compiled_in[@]}" "$@")

# The packages that own the files. Debian's lists have paths from before /lib became a
# link to /usr/lib.
declare -A owners=()
while IFS= read -r line; do
  owners[${line#*: }]=${line%%[:,]*}
done < <(
  for file in "${files[@]}"; do
    whole=$(realpath -e "$file")
    printf '%s\0' "$file" "${whole#"$system"}" "${whole#"$system/usr"}"
  done | xargs -0 dpkg-query "--admindir=$system/var/lib/dpkg" --search 2>/dev/null
)

for file in "${files[@]}"; do
  whole=$(realpath -e "$file")
  package=${owners[$file]-${owners[${whole#"$system"}]-${owners[${whole#"$system/usr"}]-}}}
  if [[ -n $package ]]; then
    copy "$system/usr/share/doc/$package/copyright" "$package" \
      "$(dpkg-query "--admindir=$system/var/lib/dpkg" --show --showformat '${Version}' "$package")"
  elif licence=$(compgen -G "${whole%/pyarrow/*}/pyarrow-*.dist-info/licenses/LICENSE.txt"); then
    version=${licence#*/pyarrow-}
    copy "$licence" arrow "${version%%.dist-info*}"
  elif [[ $whole == */LICENSE && -e ${whole%/*}/recipe_sha256 ]]; then
    copy "$whole" ffmpeg "$(<"${whole%/*}/VERSION")"
  elif [[ $whole == */cuda*/* && -e ${whole%%/cuda*}/cuda/EULA.txt ]]; then
    copy "${whole%%/cuda*}/cuda/EULA.txt" cuda "$(basename "$whole")"
  elif [[ $whole == */cuda*/* ]]; then
    # NVIDIA's packages for containers leave the text out.
    echo "NVIDIA CUDA Toolkit: https://docs.nvidia.com/cuda/eula/" >"$work/cuda"
    copy "$work/cuda" cuda "$(basename "$whole")"
  else
    echo "licences.sh: $file: belongs to no Debian package and not to Arrow or CUDA;" \
      "wanted to know its licence. Install it from a package" >&2
    exit 1
  fi
done
sort -u -o "$folder/VERSIONS" "$folder/VERSIONS"
