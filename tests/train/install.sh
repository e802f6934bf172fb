#!/bin/sh
# Makes an environment for trainers: install.sh FOLDER PINS [MORE_PINS]. `make test-train` calls it once for each.
set -eu
venv=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
pins=$2
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
pip="$venv/bin/python -m pip --disable-pip-version-check --quiet"
# torch first and with its own dependencies: which build is installed (with CUDA libraries or without) decides them.
$pip install -c "$pins" torch==2.13.0
$pip install --no-deps -r "$pins" ${3:+-r "$3"}
$pip install --no-deps --editable "$root"
touch "$venv/.ready"
