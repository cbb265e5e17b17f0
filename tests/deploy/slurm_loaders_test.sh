#!/usr/bin/env bash
# Runs deploy/slurm/loaders.sbatch as the tasks of an array, and ranks that spread over
# the addresses in its folder.
set -euo pipefail
here=$PWD
work=$(mktemp -d /tmp/ballastXXXXXX)
children=()
trap 'kill "${children[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$here/server/ballast-server" "$here/trainer_shim/ballast_rank/ballast-rank" "$work/bin/"
# The name of this machine may not resolve here.
printf '#!/bin/sh\necho localhost\n' >"$work/bin/hostname"
chmod +x "$work/bin/hostname"
"$work/bin/ballast-server" make-corpus --out "$work/data" --samples 64 --preset text
echo 'security: {insecure: true}' >>"$work/data/ballast.yaml"
"$work/bin/ballast-server" index --config "$work/data/ballast.yaml"

fail() {
  echo "$1" >&2
  cat "$work"/out* >&2
  exit 1
}

for ((i = 1; i <= 3; ++i)); do
  PATH=$work/bin:$PATH BALLAST_PORT=0 SLURM_ARRAY_TASK_ID=$i \
    bash "$here/deploy/slurm/loaders.sbatch" "$work/data/ballast.yaml" "$work/loaders" \
    >"$work/out$i" 2>&1 &
  children+=($!)
done
for ((i = 0; i < 600; ++i)); do
  [[ $(find "$work/loaders" -type f 2>/dev/null | wc -l) == 3 ]] && break
  for child in "${children[@]}"; do kill -0 "$child" || fail "a loader ended"; done
  read -rt 0.1 <> <(:) || true
done
servers=$(find "$work/loaders" -type f -printf '%f\n' | paste -sd,)
[[ $servers == *,*,* ]] || fail "found $servers"

PATH=$work/bin:$PATH ballast-rank --server "${servers%%,*}" --steps 8 --json --world all \
  >"$work/one" 2>"$work/out" || fail "a rank of one server failed"
PATH=$work/bin:$PATH ballast-rank --server "$servers" --spread 3 --steps 8 --json \
  --world all >"$work/three" 2>"$work/out" || fail "a rank of three servers failed"
without_ms() { sed -E 's/"[a-z_]*ms":[0-9.e+-]+,?//g' "$1" | sort; }
cmp <(without_ms "$work/one") <(without_ms "$work/three") || fail "batches differ"

kill "${children[@]}"
for child in "${children[@]}"; do wait "$child" || true; done
children=()
[[ -z $(ls "$work/loaders") ]] || fail "addresses were left"
status=0
bash "$here/deploy/slurm/loaders.sbatch" 2>"$work/out" || status=$?
[[ $status == 2 ]] || fail "status $status without arguments"
