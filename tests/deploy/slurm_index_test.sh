#!/usr/bin/env bash
# Runs deploy/slurm/index.sbatch as the tasks of an array, all at once, and compares the
# merged index with that of one run.
set -euo pipefail
here=$PWD
work=$(mktemp -d /tmp/ballastXXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$here/server/ballast-server" "$work/bin/"
"$work/bin/ballast-server" make-corpus --out "$work/data" --samples 600 --preset text
for format in energon jsonl; do
  "$work/bin/ballast-server" make-corpus --out "$work/$format" --samples 64 \
    --preset mixed --format "$format"
done

fail() {
  echo "$1" >&2
  cat "$work"/out* >&2
  exit 1
}

run() {
  BALLAST_BIN=$work/bin bash "$here/deploy/slurm/index.sbatch" "$config"
}

readonly tasks=4
for set in data energon jsonl; do
  config=$work/$set/ballast.yaml
  "$work/bin/ballast-server" index --config "$config" >"$work/out"
  index=$(ls "$work/$set"/.ballast/docs-*.index)
  mv "$index" "$work/wanted"
  # A merge before the shards names what is missing.
  if run >"$work/out" 2>&1; then fail "merged without shards"; fi
  grep -q "with every --shard I/N first" "$work/out" || fail "no advice"
  children=()
  for ((i = 1; i <= tasks; ++i)); do
    SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_COUNT=$tasks SLURM_ARRAY_TASK_MIN=1 \
      SLURM_ARRAY_TASK_MAX=$tasks run >"$work/out$i" 2>&1 &
    children+=($!)
  done
  for child in "${children[@]}"; do wait "$child" || fail "a shard failed"; done
  [[ ! -e $index ]] || fail "a shard wrote an index"
  run >"$work/out" 2>&1 || fail "the merge failed"
  cmp "$index" "$work/wanted" || fail "$set: another index than that of one run"
  ! ls "$work/$set"/.ballast/*.scan-* 2>/dev/null || fail "journals were left"
done

# An array that leaves out shards is refused.
status=0
SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_MIN=3 \
  SLURM_ARRAY_TASK_MAX=4 run >"$work/out" 2>&1 || status=$?
[[ $status == 2 ]] || fail "status $status of a part of an array"
