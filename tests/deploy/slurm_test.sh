#!/usr/bin/env bash
# Runs deploy/slurm/ballast.sbatch on a simulated cluster: srun and scontrol are
# replaced by scripts that run locally what Slurm would run.
set -euo pipefail
here=$PWD
work=$(mktemp -d /tmp/ballastXXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/cluster"

cat >"$work/cluster/scontrol" <<'END'
#!/usr/bin/env bash
hostname
END
# Drops srun's options and is replaced by the command that it runs.
cat >"$work/cluster/srun" <<'END'
#!/usr/bin/env bash
while [[ $1 == --* ]]; do
  case $1 in --nodes | --ntasks-per-node | --job-name) shift 2 ;; *) shift ;; esac
done
exec "$@"
END
chmod +x "$work"/cluster/*
ln -s "$here/server/ballast-server" "$here/client/ballastctl/ballastctl" \
  "$here/trainer_shim/ballast_rank/ballast-rank" "$work/bin/"

"$work/bin/ballast-server" make-corpus --out "$work/data" --samples 64 --preset text
# A free port; the script's own is fixed, since all nodes must know it.
port=$(python3 -c 'import socket
s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
echo 'security: {insecure: true}' >>"$work/data/ballast.yaml"

run() {
  PATH=$work/cluster:$PATH SLURM_JOB_ID=1 SLURM_JOB_NODELIST=here \
    BALLAST_BIN=$work/bin BALLAST_RUN=$work/run BALLAST_PORT=$port \
    bash "$here/deploy/slurm/ballast.sbatch" "$work/data/ballast.yaml" "$@"
}

# A job that succeeds: its ranks found the server by BALLAST_SERVER.
run "$work/bin/ballast-rank" --steps 2 --world all >"$work/out" 2>"$work/err" ||
  { cat "$work/out" "$work/err" >&2; exit 1; }
grep -q '"message":"SIGTERM: draining' "$work/err" ||
  { cat "$work/err" >&2; echo "the server was not drained" >&2; exit 1; }
[[ ! -e $work/run ]] || { echo "$work/run was not removed" >&2; exit 1; }

# A folder that others can write to, or a path that is not a folder, is not
# used.
mkdir -m 777 "$work/run"
status=0
run true >"$work/out" 2>"$work/err" || status=$?
[[ $status == 1 ]] || { echo "status $status with an open folder" >&2; exit 1; }
grep -q "cannot use the folder $work/run" "$work/err" ||
  { cat "$work/err" >&2; exit 1; }
rmdir "$work/run"
ln -s /tmp "$work/run"
status=0
run true >"$work/out" 2>"$work/err" || status=$?
[[ $status == 1 ]] || { echo "status $status with a link" >&2; exit 1; }
rm "$work/run"

# A job that fails: so must the script.
status=0
run false >"$work/out" 2>"$work/err" || status=$?
[[ $status == 1 ]] || { echo "status $status for a job that failed, wanted 1" >&2; exit 1; }
grep -q 'draining' "$work/err" || { echo "not drained" >&2; exit 1; }
