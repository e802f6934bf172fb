#!/bin/bash
# When all workers of /shared/runs/a.jsonl have ended: merge, profile.
#SBATCH --job-name=gymnast-a-finish
#SBATCH --output=/shared/runs/a_logs/gymnast-a-3-finish.log
#SBATCH --open-mode=append
#SBATCH --dependency=afterany:21,afterany:20
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --no-requeue
#SBATCH --partition=cpu
#SBATCH --account=p
#SBATCH --time=00:30:00
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --mem=8G

# shellcheck disable=SC2016,SC2317,SC2329 # quoted dollar signs are literal; a trap calls drain

set -euo pipefail

# One name for this job in every log and lease.
export GYMNAST_JOB_ID="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"

# merge
srun --kill-on-bad-exit=1 --nodes=1 --ntasks=1 \
    /shared/venv/bin/python -P -m gymnast.cli.main merge /shared/runs/a.jsonl

# profile
srun --kill-on-bad-exit=1 --nodes=1 --ntasks=1 \
    /shared/venv/bin/python -P -m gymnast.cli.main profile /shared/runs/a.jsonl
