#!/bin/bash
# Workers of /shared/runs/a.jsonl (submission 3), written by gymnast submit.
#SBATCH --job-name=gymnast-a
#SBATCH --output=/shared/runs/a_logs/gymnast-a-3-%a.log
#SBATCH --open-mode=append
#SBATCH --array=0-299%64
#SBATCH --signal=B:USR1@120
#SBATCH --no-requeue
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=17
#SBATCH --gpus-per-node=8

# shellcheck disable=SC2016,SC2317,SC2329 # quoted dollar signs are literal; a trap calls drain

set -uo pipefail

# One name for this job in every log and lease.
export GYMNAST_JOB_ID="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"

# Where the components of this job find each other.
job=/shared/runs/a_chunks/submissions/3/"$GYMNAST_JOB_ID.${SLURM_RESTART_COUNT:-0}"
mkdir -p "$job"

# Host names of this job.
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")

join_hosts() { # HOST…
  local IFS=,
  echo "$*"
}

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

start policy srun --kill-on-bad-exit=1 --overlap --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=8 \
    --gpus-per-node=8 \
    apptainer exec --nv --bind=/shared:/shared --bind=/scratch:/tmp --bind=/models:/models:ro \
    'registry.example.org#ai/vllm:1' \
    python3 /shared/runs/a_chunks/submissions/3/sidecar.pyz --spec /shared/runs/a_chunks/submissions/3/policy.json \
    --folder "$job"

start worker srun --kill-on-bad-exit=1 --overlap --nodes=1 --ntasks=1 --nodelist="$(join_hosts "${hosts[@]:0:1}")" \
    --cpu-bind=none \
    apptainer exec --bind=/shared:/shared --bind=/scratch:/tmp --pwd=/work /images/gymnast.sqsh \
    sh -c 'echo "$$" >"$0" && exec "$@"' "$job/main.pid" python3 /shared/runs/a_chunks/submissions/3/sidecar.pyz \
    --spec /shared/runs/a_chunks/submissions/3/worker.json --folder "$job"

# The job ends with worker, or with the first other component that does.
ended=
while [[ -z $ended ]]; do
  sleep 1 &
  wait $! # unlike sleep itself, this returns on a signal
  for name in worker policy; do
    kill -0 "${pids[$name]}" 2>/dev/null || { ended=$name && break; }
  done
done
wait "${pids[$ended]}"
code=$?
if [[ $ended != worker ]]; then
  echo "gymnast: component $ended ended (exit code $code) before worker did" >&2
  [[ $code -ne 0 ]] || code=1
fi
kill "${pids[@]}" 2>/dev/null || true
wait
[[ -z $drained ]] || echo "gymnast: the time limit was near: worker was asked to stop" >&2

exit "$code"
