#!/usr/bin/env bash
# deploy/release.sh in a repository of the test's own: what it refuses before it makes
# anything, what it makes, and what it tags. Stand-ins replace what wheel_script_test and
# package_test try.
set -euo pipefail
fail() { echo "release_test: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME=$work GIT_CONFIG_NOSYSTEM=1
install -D -t "$work/repo/deploy" deploy/release.sh
install -D -m 644 -t "$work/repo/common" common/build_info.h
install -D -m 644 -t "$work/repo/docs/reference" docs/reference/promise.txt
cd "$work/repo"
cat >deploy/wheel.sh <<'STAND_IN'
#!/usr/bin/env bash
name=ballast
while (($# > 0)); do
  case $1 in --out) out=$2 ;; --only) name=ballast-$2 ;; esac
  shift
done
kinds=(whl)
[[ $0 == */wheel.sh ]] || kinds=(tar.gz deb)
for kind in "${kinds[@]}"; do echo "${SOURCE_DATE_EPOCH:?} ${NOISE+$RANDOM}" >"$out/$name.$kind"; done
STAND_IN
cp deploy/wheel.sh deploy/package.sh
echo "import sys; print(sys.argv[1:5])" >deploy/bill_of_materials.py
chmod +x deploy/*.sh
# The version is the promise's: between two releases the program's may be another.
version=$(sed -n '1s/^# What release \(.*\) keeps:.*/\1/p' docs/reference/promise.txt)
sed -i "s/\(kVersion\[\] = \"\).*\"/\1$version\"/" common/build_info.h
printf '# Changes\n\n## %s\n\n- All.\n\n## 0.1\n' "$version" >CHANGELOG.md
git init --quiet
git config user.name Tester
git config user.email tester@ballast.invalid
commit() { git add --all && git commit --quiet --message "$1"; }
commit "Release $version"
release=$(git rev-parse HEAD)

run() { deploy/release.sh --out "$work/dist" --programs bin --fast --wheel a.whl "$@"; }
# refuses WORDS OPTIONS...: it ends with these words, has made nothing, and tags nothing.
refuses() {
  local words=$1 tags
  shift
  tags=$(git tag)
  ! run "$@" >"$work/told" 2>&1 || fail "it does not refuse: $words"
  grep -qF "$words" "$work/told" || fail "wanted \"$words\"; found $(cat "$work/told")"
  [[ ! -e $work/dist/$version/SHA256SUMS ]] || fail "it made a release in spite of: $words"
  [[ $(git tag) == "$tags" ]] || fail "it tagged in spite of: $words"
}

sed -i 's/^## .*/## Not released/' CHANGELOG.md
commit "Add a section"
refuses "CHANGELOG.md begins with \"## Not released\"; wanted \"## $version\""
rm CHANGELOG.md
refuses "CHANGELOG.md begins with \"\""
git reset --quiet --hard "$release"
sed -i '1s/release [^ ]*/release 0.1/' docs/reference/promise.txt
commit "Promise another"
refuses "docs/reference/promise.txt is not of $version"
git reset --quiet --hard "$release"
echo >>common/build_info.h
refuses "the checkout has changes"
git reset --quiet --hard "$release"
touch common/new.h
refuses "the checkout has changes"
rm common/new.h
mkdir -p "$work/dist/$version"
refuses "$work/dist/$version exists already"
rmdir "$work/dist/$version"
git tag "v$version"
refuses "the tag v$version exists already" --tag
git tag --delete "v$version" >/dev/null
git config --unset user.email
git config user.useConfigOnly true
refuses "user.email" --tag
[[ ! -e $work/dist/$version ]] || fail "it notices only at the end that nobody can tag"
git config user.email tester@ballast.invalid

# Other bytes the second time: no tag.
! NOISE=1 run --check --tag >"$work/told" 2>&1 || fail "it takes other bytes for the same"
grep -qF "the second run made other bytes" "$work/told" || fail "$(cat "$work/told")"
[[ -z $(git tag) ]] || fail "it tagged what it made twice in other bytes"
rm -r "$work/dist"
run --check --tag >"$work/told"
grep -qF "tagged v$version" "$work/told" || fail "$(cat "$work/told")"
[[ $(git for-each-ref --format '%(objecttype) %(refname:short) %(*objectname) %(contents)') == \
  *"tag v$version $release Ballast $version" ]] || fail "other tags: $(git for-each-ref)"
cd "$work/dist/$version"
sha256sum --quiet --check SHA256SUMS
files=$(ls | tr '\n' ' ')
[[ $files == "SHA256SUMS ballast-$version.spdx.json ballast-server.deb ballast-server.tar.gz"* ]] &&
  [[ $files == *" ballast.deb ballast.tar.gz ballast.whl " ]] || fail "it made $files"
(($(wc -l <SHA256SUMS) == 6)) || fail "SHA256SUMS lacks a file: $(cat SHA256SUMS)"
date=$(git -C "$work/repo" log -1 --format=%ct)
grep -qF "$date" ballast.whl || fail "the date is not the commit's: $(cat ballast.whl)"
grep -qF "'--version', '$version', '--date', '$date'" ./*.json || fail "$(cat ./*.json)"
