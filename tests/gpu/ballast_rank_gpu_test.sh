#!/usr/bin/env bash
# Runs the stand-in rank as its user does: batches made on GPUs, by all ranks in
# one process and by one process per rank, equal those made on the host.
set -euo pipefail
readonly bin=$(cd "$(dirname "$0")/../bin" && pwd)
readonly gpus=$(nvidia-smi --list-gpus | wc -l)
scratch=$(mktemp -d /tmp/ballast-XXXXXX)
server=
trap '[[ -z $server ]] || kill "$server" 2>/dev/null; rm -rf "$scratch"' EXIT
cd "$scratch"

"$bin/ballast-server" make-corpus --out data --samples 64 --seed 5 \
  --preset receipts >/dev/null
cat >job.yaml <<YAML
sources: [{name: receipts, format: webdataset, path: "data/*.tar"}]
model: {profile: qwen2_5_vl, max_pixels: 401408}
batch: {global: $((8 * gpus)), micro: $((4 * gpus))}
topology: {modules: {vision: {dp: $gpus}, language: {dp: $gpus}}}
serve: {listen: ["unix:$scratch/a.sock"], memory: 256MiB}
YAML
"$bin/ballast-server" index --config job.yaml >/dev/null
"$bin/ballast-server" serve --config job.yaml >ready 2>server.log &
server=$!
for _ in $(seq 600); do
  grep -q ready ready && break
  kill -0 "$server" || { cat server.log; exit 1; }
  sleep 0.1
done

# A rank's lines without their times.
lines() { sed -E 's/"next_ms":[^,}]*,?//' "$1" | sort; }
rank() { "$bin/ballast-rank" --server "unix:$scratch/a.sock" --steps 3 --json "$@"; }

rank --backend host >host.json
rank --backend cuda >world.json
for module in vision language; do
  for ((r = 0; r < gpus; ++r)); do
    rank --backend cuda --module "$module" --dp-rank "$r" \
      >"one-$module-$r.json" &
    ranks+=($!)
  done
done
for pid in "${ranks[@]}"; do wait "$pid"; done
cat one-*.json >processes.json

[[ $(wc -l <host.json) == $((3 * 2 * 2 * gpus)) ]]
diff <(lines host.json) <(lines world.json)
diff <(lines host.json) <(lines processes.json)
echo "$((3 * 2 * 2 * gpus)) batches on $gpus GPUs as on the host"
