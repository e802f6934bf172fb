#!/bin/bash
# Workers of /shared/runs/a.jsonl (submission 3), written by gymnast submit.
#SBATCH --job-name=gymnast-a
#SBATCH --output=/shared/runs/a_logs/gymnast-a-3-%a.log
#SBATCH --open-mode=append
#SBATCH --array=0-299%64
#SBATCH --signal=B:USR1@120
#SBATCH --no-requeue
#SBATCH --partition=cpu
#SBATCH --time=04:00:00
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1

# shellcheck disable=SC2016,SC2317,SC2329 # quoted dollar signs are literal; a trap calls drain

set -uo pipefail

# One name for this job in every log and lease.
export GYMNAST_JOB_ID="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"

# Where the components of this job find each other.
job=/shared/runs/a_chunks/submissions/3/"$GYMNAST_JOB_ID.${SLURM_RESTART_COUNT:-0}"
mkdir -p "$job"

declare -A pids=()
start() { # NAME COMMAND…
  local name=$1
  shift
  "$@" </dev/null &
  pids[$name]=$!
}

# Shortly before the time limit: finish what is in flight, hand the rest back. Slurm itself would signal every process
# of a step, and kill what the worker has started.
drained=
drain() {
  drained=yes
  local pid
  pid=$(<"$job/main.pid")
  if grep -qszFx "GYMNAST_JOB_ID=$GYMNAST_JOB_ID" "/proc/$pid/environ"; then
    kill -USR1 "$pid"
  else
    scancel --signal=USR1 "$GYMNAST_JOB_ID"
  fi
}
trap drain USR1
trap : TERM # scancel signals the steps, too: wait for them

start worker srun --kill-on-bad-exit=1 --overlap --nodes=1 --ntasks=1 \
    --chdir=/users/me/work \
    sh -c 'echo "$$" >"$0" && exec "$@"' "$job/main.pid" /shared/venv/bin/python -P -m gymnast.cli.main worker \
    /shared/runs/a.jsonl

# The job ends with worker. A signal interrupts a wait, not the process.
while kill -0 "${pids[worker]}" 2>/dev/null; do
  wait "${pids[worker]}"
done
wait "${pids[worker]}"
code=$?
[[ -z $drained ]] || echo "gymnast: the time limit was near: worker was asked to stop" >&2

exit "$code"
