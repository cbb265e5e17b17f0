#!/usr/bin/env bash
# Builds the pages as a site, with a page of the Python package's docstrings, into
# dist/site. A link or an anchor that leads nowhere is an error.
#
#   docs/site.sh [--out DIR] [--mkdocs PROGRAM]
#
#   --out DIR         instead of dist/site
#   --mkdocs PROGRAM  instead of fetching mkdocs and mkdocstrings from PyPI
set -euo pipefail
cd "$(dirname "$0")/.."
out=dist/site
mkdocs=
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
while (($# > 0)); do
  case $1 in
    --out) out=$2; shift 2 ;;
    --mkdocs) mkdocs=$2; shift 2 ;;
    --help | -h) usage; exit 0 ;;
    *) echo "site.sh: unknown argument \"$1\"" >&2; usage >&2; exit 2 ;;
  esac
done
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -z $mkdocs ]]; then
  python3 -m pip install --quiet --disable-pip-version-check --target "$work/tools" \
    mkdocs==1.6.1 mkdocstrings==1.0.8 mkdocstrings-python==2.0.11 || {
    echo "site.sh: pip could not fetch mkdocs; without PyPI, install it yourself and" \
      "name it: --mkdocs PROGRAM" >&2
    exit 1
  }
  export PYTHONPATH=$work/tools
  mkdocs=$work/tools/bin/mkdocs
fi

mkdir "$work/pages"
cp -L README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE CITATION.cff "$work/pages/"
cp -RL docs "$work/pages/docs"
rm -f "$work"/pages/docs/{BUILD.bazel,site.sh,mkdocs.yml}
# Sources that pages link to.
grep -rhoE '\]\((\.\./)+[^)#: ]+\.(h|cc|py|proto|yaml|sh)\)' "$work/pages" |
  sed -E 's/^\]\((\.\.\/)+//; s/\)$//' | sort -u | while read -r file; do
  [[ ! -f $file ]] || install -D -m 644 "$file" "$work/pages/$file"
done
mkdir "$work/python"
cp -RL trainer_shim/python/ballast "$work/python/ballast"
{
  echo "# Python API"
  echo
  for name in Loader Batch Sample Totals Connection serve Server Communicator \
    EmbeddingExchange exchange_embeddings Tensor recipe adapters.huggingface adapters.padded \
    adapters.megatron_core adapters.megatron_bridge adapters.megatron_lm errors; do
    printf '::: ballast.%s\n\n' "$name"
  done
} >"$work/pages/docs/python_api.md"
cp docs/mkdocs.yml "$work/mkdocs.yml"
# Not --quiet: then mkdocs counts no warnings, and --strict means nothing.
"$mkdocs" build --strict --config-file "$work/mkdocs.yml" --site-dir "$out" \
  >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  exit 1
}
echo "$out/index.html"
