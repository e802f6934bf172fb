#!/bin/sh
# Submits math.yaml on 1 node(s): recipes/verl/math.sh MODEL TRAIN.jsonl VALIDATION.jsonl [verl's overrides]
set -eu
model=${1:?the folder of the model} train=${2:?the training file} validation=${3:?the validation file}
shift 3
RECIPES=$(cd "$(dirname "$0")" && pwd)
export RECIPES
exec sbatch --nodes="${NODES:-1}" --gpus-per-node="${GPUS:-8}" "$RECIPES/submit.sh" math \
  actor_rollout_ref.model.path="$model" "data.train_files=[$train]" "data.val_files=[$validation]" "$@"
