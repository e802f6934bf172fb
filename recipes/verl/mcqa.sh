#!/bin/sh
# Submits mcqa.yaml on 1 node: recipes/verl/mcqa.sh MODEL TRAIN.jsonl VALIDATION.jsonl [verl's overrides]
NODES=${NODES:-1} exec "$(dirname "$0")/launch.sh" mcqa "$@"
