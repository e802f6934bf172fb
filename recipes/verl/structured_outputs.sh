#!/bin/sh
# Submits structured_outputs.yaml on 1 node: recipes/verl/structured_outputs.sh MODEL TRAIN.jsonl VALIDATION.jsonl [verl's overrides]
NODES=${NODES:-1} exec "$(dirname "$0")/launch.sh" structured_outputs "$@"
