#!/bin/sh
# Submits instruction_following.yaml on 1 node: recipes/verl/instruction_following.sh MODEL TRAIN.jsonl VALIDATION.jsonl [verl's overrides]
NODES=${NODES:-1} exec "$(dirname "$0")/launch.sh" instruction_following "$@"
