#!/bin/sh
# Submits workplace.yaml on 2 node(s): recipes/verl/workplace.sh MODEL TRAIN.jsonl VALIDATION.jsonl [verl's overrides]
set -eu
model=${1:?the folder of the model} train=${2:?the training file} validation=${3:?the validation file}
shift 3
RECIPES=$(cd "$(dirname "$0")" && pwd)
export RECIPES
exec sbatch --nodes="${NODES:-2}" --gpus-per-node="${GPUS:-8}" "$RECIPES/submit.sh" workplace \
  actor_rollout_ref.model.path="$model" "data.train_files=[$train]" "data.val_files=[$validation]" "$@"
