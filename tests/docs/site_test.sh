#!/usr/bin/env bash
# docs/site.sh builds the site, with the Python package's docstrings by class, fetches
# nothing from other hosts, and refuses a link that leads nowhere. Skipped unless
# BALLAST_MKDOCS names mkdocs in a Python with mkdocs-material and mkdocstrings[python].
set -euo pipefail
if [[ -z ${BALLAST_MKDOCS:-} ]]; then
  echo "SKIPPED: BALLAST_MKDOCS is unset: no mkdocs, and a test fetches none"
  exit 0
fi
fail() {
  echo "site_test: $*" >&2
  exit 1
}
cp -RL . "$TEST_TMPDIR/tree"
cd "$TEST_TMPDIR/tree"
chmod -R u+w .
# The test has copies of pages only, not of the sources that they link to.
sources=$(grep -rhoE '\]\((\.\./)+[^)#: ]+\.(h|cc|py|proto|yaml|sh)\)' docs |
  sed -E 's/^\]\((\.\.\/)+//; s/\)$//' | sort -u)
for source in $sources; do
  [[ -e $source ]] || install -D /dev/null "$source"
done
docs/site.sh --out "$TEST_TMPDIR/site" --mkdocs "$BALLAST_MKDOCS"
for page in index docs/configuration docs/reference/rpc docs/decisions/0001-system-libraries; do
  [[ -s $TEST_TMPDIR/site/$page.html ]] || fail "no page $page.html"
done
api=$(<"$TEST_TMPDIR/site/docs/api/loader.html")
[[ $api == *"data-parallel rank, or a rank for each module"* ]] ||
  fail "the Python API lacks Loader's docstring"
[[ $api == *'id="ballast.Loader.state_dict"'* ]] || fail "the Python API lacks Loader's methods"
if grep -rlE '<(script|link|img)[^>]+(src|href)="https?://[^"]+\.(js|css|png|woff2?)|unpkg.com/iframe' \
  "$TEST_TMPDIR/site" --include='*.html'; then
  fail "these pages fetch from other hosts"
fi
[[ -s $TEST_TMPDIR/site/search/search_index.js ]] || fail "files cannot be searched"
for broken in "[a](docs/none.md)" "[a](docs/metrics.md#none)"; do
  cp README.md kept.md
  echo "$broken" >>README.md
  if docs/site.sh --out "$TEST_TMPDIR/broken" --mkdocs "$BALLAST_MKDOCS" >log 2>&1; then
    fail "$broken was accepted"
  fi
  log=$(<log)
  [[ $log == *none* ]] || fail "$broken: the message does not name it: $log"
  mv kept.md README.md
done
