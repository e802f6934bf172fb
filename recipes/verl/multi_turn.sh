#!/bin/sh
# Submits multi_turn.yaml on 1 node: recipes/verl/multi_turn.sh MODEL TRAIN.jsonl VALIDATION.jsonl [verl's overrides]
NODES=${NODES:-1} exec "$(dirname "$0")/launch.sh" multi_turn "$@"
