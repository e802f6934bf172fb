#!/bin/sh
# Submits workplace.yaml on 2 nodes: recipes/verl/workplace.sh MODEL TRAIN.jsonl VALIDATION.jsonl [verl's overrides]
NODES=${NODES:-2} exec "$(dirname "$0")/launch.sh" workplace "$@"
