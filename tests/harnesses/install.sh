#!/bin/sh
# Installs the harnesses that the tests run into the folder $1, each Python package with its own environment.
set -eu
target=$1
python=${PYTHON:-python3}
mkdir -p "$target"
command -v npm >/dev/null && npm install --silent --no-audit --no-fund --prefix "$target/npm" @anthropic-ai/claude-code @openai/codex ||
  echo "no npm: Claude Code and Codex are not tested"
"$python" -m venv "$target/uv"
"$target/uv/bin/python" -m pip install --quiet --disable-pip-version-check uv
environment() {
  name=$1
  shift
  "$python" -m venv "$target/$name" && "$target/uv/bin/uv" pip install --quiet --python "$target/$name/bin/python" "$@" ||
    echo "$name is not tested: its packages cannot be installed here"
}
environment mini_swe_agent mini-swe-agent mcp
environment pydantic_ai 'pydantic-ai-slim[openai,mcp]'
environment langgraph langgraph langchain-openai langchain-mcp-adapters
environment smolagents 'smolagents[openai,mcp]' 'mcp<2'
# OpenHands needs Python 3.12, which uv finds on the path or downloads; those of pyenv are often not on the path.
PATH=$PATH$(printf ':%s' "$HOME"/.pyenv/versions/3.12*/bin)
"$target/uv/bin/uv" venv --quiet --python 3.12 "$target/openhands" &&
  "$target/uv/bin/uv" pip install --quiet --python "$target/openhands/bin/python" openhands ||
  echo "openhands is not tested: it cannot be installed here"
touch "$target/.ready"
