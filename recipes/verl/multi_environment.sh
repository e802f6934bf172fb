#!/bin/sh
# Submits multi_environment.yaml on 2 nodes: recipes/verl/multi_environment.sh MODEL TRAIN.jsonl VALIDATION.jsonl [verl's overrides]
NODES=${NODES:-2} exec "$(dirname "$0")/launch.sh" multi_environment "$@"
