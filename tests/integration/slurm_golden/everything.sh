#!/bin/bash
# Workers of /shared/runs/a.jsonl (submission 3), written by gymnast submit.
#SBATCH --job-name=gymnast-a
#SBATCH --output=/shared/runs/a_logs/gymnast-a-3-%a.log
#SBATCH --open-mode=append
#SBATCH --array=0-299%64
#SBATCH --dependency=afterok:17,afterany:18
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --partition=cpu,long
#SBATCH --account=proj-1
#SBATCH --qos=high
#SBATCH --time=1-12:00:00
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --gres=gpu:h100:8
#SBATCH --comment='it'"'"'s mine; $(touch /tmp/oops)'
#SBATCH --mail-user=me@example.org
#SBATCH --mail-type=END,FAIL
#SBATCH --exclusive
#SBATCH --constraint='a100&nvme'
#SBATCH --nice

# shellcheck disable=SC2016,SC2317,SC2329 # quoted dollar signs are literal; a trap calls drain

export HF_HOME='/shared/hf home'
export PYTHONPATH=/shared/code/1
export QUOTES=''"'"'"$HOME"`id`'

# From the cluster file.
set --
module load cuda/12
source /shared/env.sh

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

start worker srun --kill-on-bad-exit=1 --overlap --nodes=1 --ntasks=1 --cpus-per-task=16 --mpi=none \
    --chdir=/shared/code/1/sub \
    sh -c 'echo "$$" >"$0" && exec "$@"' "$job/main.pid" /shared/venv/bin/python -P -m gymnast.cli.main worker \
    /shared/runs/a.jsonl

# The job ends with worker. A signal interrupts a wait, not the process.
while kill -0 "${pids[worker]}" 2>/dev/null; do
  wait "${pids[worker]}"
done
wait "${pids[worker]}"
code=$?
[[ -z $drained ]] || echo "gymnast: the time limit was near: worker was asked to stop" >&2

# It reached its time limit with work left: requeue it, at most 5 times.
if [[ -n $drained && $code -eq 75 && ${SLURM_RESTART_COUNT:-0} -lt 5 ]]; then
  echo "gymnast: back into the queue (${SLURM_RESTART_COUNT:-0} of 5 times so far)" >&2
  scontrol requeue "$GYMNAST_JOB_ID" && sleep 60 # it ends here
fi

exit "$code"
