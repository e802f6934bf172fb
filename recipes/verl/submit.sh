#!/bin/bash
# Trains with verl and Gymnast on as many nodes as Slurm gives:
#   sbatch --nodes=2 --gpus-per-node=8 recipes/verl/submit.sh math \
#     actor_rollout_ref.model.path=/models/Qwen3-4B 'data.train_files=[math.jsonl]' 'data.val_files=[aime.jsonl]'
# The first argument names a file of this folder, the others go to verl. VENV names the environment (default .venv-verl),
# RECIPES this folder, where sbatch is not called from the root of the repository; math.sh and so on set it.
#SBATCH --job-name=gymnast-verl
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.log
set -euo pipefail

config=${1:?which configuration? a file of this folder, such as math}
shift
recipes=${RECIPES:-$PWD/recipes/verl}
venv=${VENV:-$PWD/.venv-verl}
[ -e "$recipes/$config.yaml" ] || { echo "there is no $recipes/$config.yaml" >&2; exit 2; }
ray=$venv/bin/ray

nodes=${SLURM_JOB_NUM_NODES:?this is a job script: submit it with sbatch}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
folder=/tmp/ray-$SLURM_JOB_ID
gpus=${SLURM_GPUS_ON_NODE:-8}
cpus=${SLURM_CPUS_ON_NODE:-$(nproc)}

# Without a token, everyone on the network could run code in the job's cluster. Where the home folder has one, `ray start`
# wants it from all, but clients do not send it by themselves: so the job has its own. Older versions of Ray ignore both.
export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
export RAY_AUTH_TOKEN=${RAY_AUTH_TOKEN:-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')}

# Slurm names a task's GPUs in the variables of all vendors; verl wants one of them.
on_head() { srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" env -u ROCR_VISIBLE_DEVICES "$@"; }
# Everything that was started in this job ends with it.
trap 'jobs -p | xargs -r kill 2>/dev/null || true' EXIT

# Port 0: Ray takes one that is free and writes down which, so that jobs on one node do not meet. A requeued job must not
# read what it wrote down before.
on_head rm -rf "$folder"
on_head "$ray" start --head --port=0 --num-cpus="$cpus" --num-gpus="$gpus" --temp-dir="$folder" --disable-usage-stats --block &
address=
for _ in $(seq 120); do
  address=$(on_head cat "$folder/ray_current_cluster" 2>/dev/null || true)
  [ -n "$address" ] && break
  sleep 1
done
[ -n "$address" ] || { echo "Ray did not start on $head within 2 minutes" >&2; exit 1; }

if [ "$nodes" -gt 1 ]; then
  srun --overlap --nodes=$((nodes - 1)) --ntasks=$((nodes - 1)) --exclude="$head" env -u ROCR_VISIBLE_DEVICES \
    "$ray" start --address="$address" --num-cpus="$cpus" --num-gpus="$gpus" --disable-usage-stats --block &
fi

# verl waits for its GPUs without an end: so count them first.
for attempt in $(seq 60); do
  there=$(on_head "$venv/bin/python" -c \
    "import ray; ray.init('$address', log_to_driver=False); print(sum(node['Alive'] for node in ray.nodes()))" || echo 0)
  [ "${there##*$'\n'}" -ge "$nodes" ] && break
  [ "$attempt" -lt 60 ] || { echo "$there of $nodes nodes joined Ray within 5 minutes" >&2; exit 1; }
  sleep 5
done

on_head env RAY_ADDRESS="$address" "$venv/bin/python" -m verl.trainer.main_ppo \
  --config-path="$recipes" --config-name="$config" \
  trainer.nnodes="$nodes" trainer.n_gpus_per_node="$gpus" "$@"
