#!/bin/sh
# Submits code_gen.yaml on 1 node: recipes/verl/code_gen.sh MODEL TRAIN.jsonl VALIDATION.jsonl [verl's overrides]
NODES=${NODES:-1} exec "$(dirname "$0")/launch.sh" code_gen "$@"
