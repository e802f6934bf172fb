#!/bin/sh
# Submits calendar.yaml on 1 node: recipes/verl/calendar.sh MODEL TRAIN.jsonl VALIDATION.jsonl [verl's overrides]
NODES=${NODES:-1} exec "$(dirname "$0")/launch.sh" calendar "$@"
