#!/usr/bin/env bash
# Builds the pages as a site, with the Python package's docstrings by class, into
# dist/site. It can be searched and read without a network, from a server or as files. A
# link or an anchor that leads nowhere is an error.
#
#   docs/site.sh [--out DIR] [--mkdocs PROGRAM]
#
#   --out DIR         instead of dist/site
#   --mkdocs PROGRAM  instead of fetching mkdocs with its theme and plugins from PyPI
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
    mkdocs==1.6.1 mkdocs-material==9.8.2 mkdocstrings==1.0.8 mkdocstrings-python==2.0.11 \
    ruff==0.17.6 || {
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
mv "$work"/pages/docs/site{.css,_worker.js} "$work/pages/"
rm -f "$work"/pages/docs/{BUILD.bazel,site.sh,mkdocs.yml}
# Sources that pages link to.
grep -rhoE '\]\((\.\./)+[^)#: ]+\.(h|cc|py|proto|yaml|sh)\)' "$work/pages" |
  sed -E 's/^\]\((\.\.\/)+//; s/\)$//' | sort -u | while read -r file; do
  [[ ! -f $file ]] || install -D -m 644 "$file" "$work/pages/$file"
done
mkdir "$work/python"
cp -RL trainer_shim/python/ballast "$work/python/ballast"
# A page a class, or a module of functions.
api=$work/pages/docs/api
mkdir "$api"
printf '# Python API\n\n`import ballast`; a page for each class and each module of functions.\n\n' \
  >"$api/index.md"
# page FILE TITLE ABOUT NAME...
page() {
  echo "- [$2]($1.md): $3" >>"$api/index.md"
  {
    printf '# %s\n\n' "$2"
    printf '::: ballast.%s\n\n' "${@:4}"
  } >"$api/$1.md"
}
page loader Loader "the iterator of a training loop" Loader
page batch "Batch, Sample and Totals" "what a loader yields" Batch Sample Totals
page serve "serve and Server" "a server of this process" serve Server
page connection "Connection" "one connection for several loaders" Connection
page errors Errors "what is raised, by kind" errors
page recipe Recipes "your own Python that makes samples" recipe
page huggingface "Hugging Face" "batches for models of transformers" adapters.huggingface \
  adapters.huggingface_families adapters.huggingface_audio adapters.huggingface_encoders \
  adapters.huggingface_split
page padded "Padded batches and preferences" "rows of one length; pairs of answers" adapters.padded \
  adapters.preferences
page megatron_bridge Megatron-Bridge "its loops and models" adapters.megatron_bridge
page megatron_core Megatron-Core "packed sequences, context parallelism" adapters.megatron_core \
  adapters.megatron_llava
page megatron_lm Megatron-LM "its iterators and hooks" adapters.megatron_lm
page communicator Communicator "how ranks exchange samples" Communicator
page embeddings Embeddings "modules on ranks of their own" exchange_embeddings EmbeddingExchange \
  ModuleGroups
page tensor Tensor "an array without NumPy or PyTorch" Tensor TensorRow tensor_table
cp docs/mkdocs.yml "$work/mkdocs.yml"
export NO_MKDOCS_2_WARNING=1  # of the theme
# Not --quiet: then mkdocs counts no warnings, and --strict means nothing.
"$mkdocs" build --strict --config-file "$work/mkdocs.yml" --site-dir "$out" \
  >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  exit 1
}
find "$out" -name '*.html' | while read -r file; do
  worker=$(realpath --relative-to "$(dirname "$file")" "$out/site_worker.js")
  sed -i "s|https://unpkg.com/iframe-worker/shim|$worker|" "$file"
done
echo "$out/index.html"
