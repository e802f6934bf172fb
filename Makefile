# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SCHEDULES ?= 10

.PHONY: demo test test-crash check bench docs lock clean

demo: $(VENV)/.base  ## set up, run the main job end to end, show where the files are
	$(BIN)/gymnast demo

test: $(VENV)/.dev  ## set up and run the tests
	$(BIN)/pytest --ignore tests/crash

test-crash: $(VENV)/.dev  ## kill everything at random moments and resume; SCHEDULES=200 takes some 20 minutes
	GYMNAST_CRASH_SCHEDULES=$(SCHEDULES) $(BIN)/pytest tests/crash

check: $(VENV)/.dev  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/generate.py --check

bench: $(VENV)/.dev  ## measure; prints ratios to a yardstick measured in the same run
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/http_client.py
	$(BIN)/python bench/rollout_cost.py
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
