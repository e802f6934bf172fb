#!/bin/sh
# What the scripts of this folder share: launch.sh RECIPE MODEL TRAIN.jsonl VALIDATION.jsonl [verl's overrides]
# NODES and GPUS (8) are those of the job and of each node.
set -eu
recipe=${1:?which recipe?} model=${2:?the folder of the model} train=${3:?the training file}
validation=${4:?the validation file}
shift 4
RECIPES=$(cd "$(dirname "$0")" && pwd)
export RECIPES
exec sbatch --nodes="${NODES:-1}" --gpus-per-node="${GPUS:-8}" "$RECIPES/submit.sh" "$recipe" \
  actor_rollout_ref.model.path="$model" "data.train_files=[$train]" "data.val_files=[$validation]" "$@"
