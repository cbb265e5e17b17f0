#!/usr/bin/env bash
# From nothing to packed batches in four ranks, on this machine, without a GPU:
# installs the packages, builds, draws a dataset, indexes it, starts a loader
# server, runs every rank of a dp 4 job in one process and prints what moved.
#
#   deploy/quickstart.sh [--samples N] [--steps N] [--keep DIR]
#
# --keep leaves the dataset, the configuration and the server's log in DIR.
set -euo pipefail
cd "$(dirname "$0")/.."

samples=256
steps=8
keep=
usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }
while [[ $# -gt 0 ]]; do
  case $1 in
    --samples) samples=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --keep) keep=$2; shift 2 ;;
    --help | -h) usage; exit 0 ;;
    *) echo "quickstart.sh: unknown argument \"$1\"" >&2; usage >&2; exit 2 ;;
  esac
done

stage=0
say() { printf '\n== %d/6 %s\n' $((stage += 1)) "$*"; }

say "Installing the packages that are missing"
deploy/setup.sh --noarrow

# Prints Bazel's counts as one line that is written over on a terminal, and as a
# line every ten seconds elsewhere. Whatever else Bazel says passes, but for its
# notes on loading.
show_progress() {
  local line counts over=
  while IFS= read -r line; do
    case $line in
      "["*" / "*"]"*)
        counts=${line%%]*}
        counts=${counts#[}
        counts="building: ${counts% / *} of ${counts#* / } actions, $((SECONDS - build_start)) s"
        if [[ -t 1 ]]; then
          printf '\r%s\033[K' "$counts"
          over=1
        else
          echo "$counts"
        fi
        ;;
      "" | Loading:* | Analyzing:* | INFO:*) ;;
      *)
        [[ -z $over ]] || echo
        over=
        printf '%s\n' "$line"
        ;;
    esac
  done
  [[ -z $over ]] || echo
}

# Without CUDA and Arrow, which the demonstration does not use.
build=(--config=quick)
! command -v clang >/dev/null || build+=(--config=clang)
say "Building three programs"
build_start=$SECONDS
interval=10
[[ ! -t 1 ]] || interval=1
bazel build "${build[@]}" --color=no --curses=no "--show_progress_rate_limit=$interval" \
  //server:ballast-server //client/ballastctl //trainer_shim/ballast_rank:ballast-rank \
  2>&1 | show_progress
bin=$(bazel info "${build[@]}" bazel-bin 2>/dev/null)
server=$bin/server/ballast-server
ctl=$bin/client/ballastctl/ballastctl
rank=$bin/trainer_shim/ballast_rank/ballast-rank

if [[ -n $keep ]]; then
  mkdir -p "$keep"
  work=$(realpath "$keep")
else
  work=$(mktemp -d)
fi
server_pid=
cleanup() {
  [[ -z $server_pid ]] || { kill "$server_pid" 2>/dev/null && wait "$server_pid"; } || true
  [[ -n $keep ]] || rm -rf "$work"
}
trap cleanup EXIT

say "Drawing $samples receipts"
"$server" make-corpus --out "$work" --samples "$samples" --preset receipts --seed 1

say "Indexing"
"$server" index --config "$work/ballast.yaml"

say "Starting a loader server"
"$server" serve --config "$work/ballast.yaml" --listen 127.0.0.1:0 \
  >"$work/server.out" 2>"$work/server.log" &
server_pid=$!
address=
for _ in $(seq 300); do
  address=$(sed -n 's/^ready \([^ ]*\).*/\1/p' "$work/server.out")
  [[ -z $address ]] || break
  kill -0 "$server_pid" 2>/dev/null || {
    cat "$work/server.log" >&2
    echo "quickstart.sh: the server ended; its log is above" >&2
    exit 1
  }
  sleep 0.1
done
[[ -n $address ]] || {
  echo "quickstart.sh: the server was not ready after 30 s" >&2
  exit 1
}
"$ctl" --server "$address" status

say "Running every rank of the job, $steps steps"
"$rank" --server "$address" --backend host --world all --steps "$steps"
printf '\nThe whole took %d:%02d. The server ends with it; --keep DIR leaves what it served.\n' \
  $((SECONDS / 60)) $((SECONDS % 60))
