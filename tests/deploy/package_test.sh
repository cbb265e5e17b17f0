#!/usr/bin/env bash
# deploy/package.sh: checks the content of the tarball and the package, and that
# the server runs from where the tarball was unpacked. The programs are this
# test's own builds; `deploy/package.sh` alone builds optimised ones.
set -euo pipefail
here=$PWD
for tool in dpkg-deb dpkg-shlibdeps patchelf; do
  command -v $tool >/dev/null || { echo "no $tool; deploy/setup.sh has it" >&2; exit 1; }
done
work=$(mktemp -d /tmp/ballastXXXXXX)
server=
cleanup() {
  [[ -z $server ]] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
fail() { echo "package_test: $*" >&2; exit 1; }

# package.sh writes nothing into the tree, so the runfiles suffice. The umask is
# a restrictive one: the packages must still be readable by all.
(umask 077 && deploy/package.sh --fast --programs "$here" --out "$work/dist")
deploy/package.sh --fast --only server --programs "$here" --out "$work/dist"

mapfile -t tarballs < <(ls "$work"/dist/*.tar.gz)
((${#tarballs[@]} == 1)) || fail "tarballs: ${tarballs[*]}"
mkdir "$work/elsewhere"
tar --extract --gzip --preserve-permissions --file "${tarballs[0]}" --directory "$work/elsewhere"
closed=$(find "$work"/elsewhere/* -not -type l \( -perm /022 -o -not -perm -444 -o \
  -type d -not -perm -111 \))
[[ -z $closed ]] || fail "not readable by all, or writable by others: $closed"
top=$(echo "$work"/elsewhere/ballast-*)
for file in bin/ballast-server bin/ballastctl bin/ballast-rank LICENSE \
  lib/libballast_shim.so.1 lib/pkgconfig/ballast_shim.pc \
  include/ballast/trainer_shim/c_api.h python/ballast/__init__.py share/ballast/ballast.yaml \
  share/ballast/deploy/kubernetes/daemonset.yaml share/doc/ballast/README.md; do
  [[ -e $top/$file ]] || fail "the tarball lacks $file"
done
# What is compiled in, and each library that is brought along, has its licence.
for package in libopencv-core-dev libcli11-dev libgrpc++1.51 libprotobuf32 libdav1d6 \
  libsentencepiece0 libsndfile1 libsoxr0 libmpg123-0; do
  [[ -s $top/licences/$package ]] || fail "the tarball lacks the licence of $package"
done
# Every library except C's and C++'s must come from the tarball itself.
strays=$(ldd "$top/bin/ballast-server" "$top/lib/libballast_shim.so.1" |
  awk '$2 == "=>" {print $3}' | grep -v "^$top/" |
  grep -vE '/lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s)\.so|libcuda|libnccl|^not$' || true)
[[ -z $strays ]] || fail "libraries taken from the system: $strays"

# What the helpers are linked with comes along for them alone, with all it needs.
for helper in server/media/video/decoder/decoder server/media/audio/decoder/{ffmpeg,sndfile} \
  server/text/sentencepiece/helper; do
  while read -r library; do
    # FFmpeg's are in a release's helpers (deploy/ffmpeg.sh).
    [[ $library =~ ^(lib(c|m|gcc_s|stdc\+\+|z)|libav[a-z]*|libsw[a-z]*|ld-linux.*)\.so ]] ||
      [[ -e $top/lib/ballast/helpers/$library ]] ||
      fail "$helper needs $library, which deploy/helper_libraries.sh does not list"
  done < <(objdump -p "$helper" | awk '$1 == "NEEDED" {print $2}')
done
strays=$(ldd "$top"/lib/ballast/helpers/* | awk '$2 == "=>" {print $3}' | grep -v "^$top/" |
  grep -vE '/lib(c|m|gcc_s|stdc\+\+)\.so' || true)
[[ -z $strays ]] || fail "libraries of helpers taken from the system: $strays"
env -i LD_DEBUG=libs "$top/bin/ballast-server" inspect helpers >"$work/helpers" 2>"$work/loaded" ||
  fail "a helper does not run: $(cat "$work/helpers")"
(($(wc -l <"$work/helpers") == 4)) || fail "not four helpers: $(cat "$work/helpers")"
for library in libsentencepiece.so.0 libsndfile.so.1 libsoxr.so.0 libdav1d.so.6; do
  grep -q "calling init: $top/lib/ballast/helpers/$library" "$work/loaded" ||
    fail "no helper has loaded the tarball's $library"
done
# Without them it says so, and so does the doctor.
mkdir -p "$work/bare/bin" "$work/bare/lib/ballast/helpers"
cp "$top"/bin/{ballast-server,ballastctl} "$work/bare/bin/"
cp -r "$top"/lib/*.so* "$work/bare/lib/"
echo "no library" >"$work/bare/lib/ballast/helpers/libsndfile.so.1"
! "$work/bare/bin/ballast-server" inspect helpers >"$work/helpers" 2>"$work/loaded" ||
  fail "a helper without its library runs"
grep -q '"reads":"audio","error":"audio cannot be decoded here' "$work/helpers" ||
  fail "the helper does not name its library: $(cat "$work/helpers")"
grep -q 'libsndfile.so.1' "$work/loaded" || fail "the loader names no library: $(cat "$work/loaded")"
"$work/bare/bin/ballastctl" doctor >"$work/told" 2>/dev/null || true
grep -q '^fault: audio: audio cannot be decoded here' "$work/told" ||
  fail "the doctor does not name the fault: $(cat "$work/told")"
rm "$work"/bare/lib/libyaml-cpp*
"$work/bare/bin/ballastctl" doctor >"$work/told" 2>/dev/null || true
libraries=$(ldd "$work/bare/bin/ballast-server")  # not piped: grep -q ends before ldd does
grep -q 'libyaml-cpp.*=> /' <<<"$libraries" ||
  grep -q '^fault: video, audio, SentencePiece: .*libyaml-cpp' "$work/told" ||
  fail "the doctor does not name what the server lacks: $(cat "$work/told")"
# Nothing needs more of a machine than each distribution has; before that was seen to,
# the server did, by the one symbol that has an older version.
deploy/symbol_versions.py "$top" || fail "the tarball does not run everywhere (above)"
cp server/ballast-server "$work/server" && chmod u+w "$work/server"
! deploy/symbol_versions.py "$work/server" >"$work/table" || fail "the check finds nothing"
grep -q '^RHEL 9: GLIBCXX ends at 3.4.29$' "$work/table" || fail "another finding: $(cat "$work/table")"
# Debian 12's C++ library, which needs its C library.
! deploy/symbol_versions.py "$(realpath "$(gcc -print-file-name=libstdc++.so.6)")" >"$work/table" ||
  fail "the check takes Debian 12's libstdc++"
grep -q '^Ubuntu 22.04: GLIBC ends at 2.35$' "$work/table" || fail "$(cat "$work/table")"

# Runs from there, with an empty environment, until a client has a block.
run() { env -i "$top/bin/$1" "${@:2}"; }
run ballast-server --version
[[ $(run ballast-rank --version) == *" CUDA" ]] || fail "ballast-rank does not say that it has CUDA"
run ballast-server make-corpus --out "$work/data" --samples 32 --preset text
run ballast-server index --config "$work/data/ballast.yaml"
env -i "$top/bin/ballast-server" serve --config "$work/data/ballast.yaml" \
  --listen "unix:$work/a.sock" &
server=$!
run ballastctl --server "unix:$work/a.sock" health --wait 60
run ballast-rank --server "unix:$work/a.sock" --steps 1
version=$(env -i PYTHONPATH="$top/python" "$(command -v python3)" -B -c \
  'import ballast; from ballast.adapters._profiles import model_types
assert model_types(); print(ballast.library_version())')
[[ $version == [0-9]*.* ]] || fail "the Python package found version $version"
kill "$server"
wait "$server" || fail "the server ended with $?"
server=

for deb in "$work"/dist/*.deb; do
  depends=$(dpkg-deb --field "$deb" Depends)
  for library in libc6 libgrpc++ libprotobuf libyaml-cpp; do
    [[ $depends == *$library* ]] || fail "$deb does not depend on $library: $depends"
  done
  # What helpers load: the server's package needs it, apt installs it with the other.
  depends+=", $(dpkg-deb --field "$deb" Recommends)"
  for library in libdav1d6 libsentencepiece0 libsndfile1 libsoxr0; do
    [[ $depends == *$library* ]] || fail "$deb does not bring $library: $depends"
  done
  contents=$(dpkg-deb --contents "$deb")
  for file in ./usr/bin/ballast-server ./lib/systemd/system/ballast-server.service \
    ./usr/lib/sysusers.d/ballast.conf ./usr/share/ballast/ballast.yaml \
    "./usr/share/doc/$(dpkg-deb --field "$deb" Package)/licences/libopencv-core-dev"; do
    [[ $contents == *" $file"* ]] || fail "$deb lacks $file"
  done
  grep -qvE '^(l\S+|[-d]rw[-x]r-[-x]r-[-x]) root/root ' <<<"$contents" &&
    fail "$deb: not all is root's, to be read by all and written by root alone"
  # A program with the build directory in its run path would look there for
  # libraries.
  dpkg-deb --extract "$deb" "$work/root"
  grep -q '^StartLimitIntervalSec=0$' "$work/root/lib/systemd/system/ballast-server.service" ||
    fail "$deb: systemd gives up a server that waits for its mount"
  path=$(patchelf --print-rpath "$work/root/usr/bin/ballast-server")
  [[ $path != '$ORIGIN/../lib/ballast' ]] || path=
  [[ -z $path ]] || fail "$deb: the server looks for libraries in $path"
  # Arrow is not Debian's: where the server needs it, the package brings it.
  strays=$(ldd "$work/root/usr/bin/ballast-server" "$work"/root/usr/lib/ballast/*.so* 2>/dev/null |
    awk '$1 ~ /^lib(arrow|parquet)/ {print $3}' | grep -v "^$work/root/" || true)
  [[ -z $strays ]] || fail "$deb: Arrow taken from elsewhere: $strays"
done
# The same programs give the same bytes, whenever and by whomever they are packed.
deploy/package.sh --fast --only server --programs "$here" --out "$work/again"
cmp "$work"/dist/ballast-server_*.deb "$work"/again/*.deb || fail "packed twice: other bytes"
# The bill of materials has each file, and what each brings with its version.
deploy/bill_of_materials.py --version 1.2.3 --date 0 "$work"/dist/*.{tar.gz,deb} >"$work/spdx"
python3 - "$work/spdx" <<'EOF' || fail "the bill of materials is not whole (above)"
import json, sys
bill = json.load(open(sys.argv[1]))
packages = {p["SPDXID"]: p for p in bill["packages"]}
described = [r["relatedSpdxElement"] for r in bill["relationships"]
             if r["relationshipType"] == "DESCRIBES"]
assert len(described) == 3, described
assert all(len(packages[i]["checksums"][0]["checksumValue"]) == 64 for i in described)
for file in described:
    brought = {packages[r["relatedSpdxElement"]]["name"]: packages[r["relatedSpdxElement"]]
               for r in bill["relationships"] if r["spdxElementId"] == file}
    assert brought["libopencv-core-dev"]["versionInfo"][0].isdigit(), file
    (reference,) = brought["libopencv-core-dev"]["externalRefs"]
    assert reference["referenceLocator"].startswith("pkg:deb/debian/libopencv-core-dev@"), file
    assert ".deb" in file or "libsentencepiece0" in brought, file
EOF
echo "packages: $(cd "$work/dist" && du -h -- * | tr '\n' ' ')"
