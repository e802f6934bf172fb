#!/bin/sh
# Submits tool_use.yaml on 1 node: recipes/verl/tool_use.sh MODEL TRAIN.jsonl VALIDATION.jsonl [verl's overrides]
NODES=${NODES:-1} exec "$(dirname "$0")/launch.sh" tool_use "$@"
