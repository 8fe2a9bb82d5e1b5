# make demo   see a training job hit a bad node and come back elsewhere; needs Python 3.11+ and nothing else
# make test   lint, types, unit tests, workflow tests, and the end-to-end suite on a real Slurm cluster on this host
# make help   everything else

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FUZZ_SECONDS ?= 60
SEED ?= 1
RUNS ?= 5
CLUSTER ?= simulated
CHAOS ?=
MODEL_RUNS ?= 100000
JOBS ?= 200
DRILLS ?=
SLURM_RELEASES := 24.11 26.05
SLURM_MATRIX := tests/scheduler/test_cli_conformance.py tests/ssh/test_conformance.py tests/rest \
    tests/site/test_submitting_anew.py \
    tests/endtoend/test_bad_node.py::test_the_job_comes_back_without_the_bad_node_from_its_checkpoint

# Tests start hundreds of processes: none should compile the project again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test lint unit slurm test-slurm-matrix benchmarks chaos drills model-check fuzz lock clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile
	@echo "make lint | unit | slurm | test-slurm-matrix | benchmarks | chaos | drills | model-check | fuzz | lock | clean"

demo: $(VENV)/.runtime
	@$(BIN)/relight demo

# Tests mostly wait for real servers and clusters: six at a time, a file in one go, each with its own servers. Which files
# come first, tests/conftest.py says.
test: $(VENV)/.dev
	@bash tests/install_packages.sh
	@bash tests/install_stores.sh
	@bash tests/install_attrsvc.sh
	@$(MAKE) --no-print-directory lint
	@$(BIN)/pytest --numprocesses 6 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

unit: $(VENV)/.dev
	@$(BIN)/pytest -m "not slurm and not temporal and not postgres"

slurm: $(VENV)/.dev
	@bash tests/install_packages.sh
	@$(BIN)/pytest -m slurm

# The scheduler suite and a whole recovery on this host's own Slurm and on two others, in folders that are kept.
test-slurm-matrix: $(VENV)/.dev
	@bash tests/install_packages.sh
	@for release in $(SLURM_RELEASES); do sh tests/slurm/make_root.sh $$release || exit; done
	@for release in own $(SLURM_RELEASES); do echo "Slurm: $$release"; \
	    $(BIN)/pytest -q --slurm $$release $(SLURM_MATRIX) || exit; done

benchmarks: $(VENV)/.dev
	@$(BIN)/python -m benchmarks

# RUNS runs with the seeds from SEED on, about a minute each: everything is broken while jobs recover. CLUSTER=real: on a
# Slurm cluster on this host. tests/chaos/README.md says what is done and what is checked, and what CHAOS may hold.
chaos: $(VENV)/.dev
	@$(BIN)/python -m tests.chaos --seed $(SEED) --runs $(RUNS) --cluster $(CLUSTER) $(CHAOS)

# The log stores, the shared file system, slurmctld, slurmdbd, PostgreSQL and Temporal are lost in turn while JOBS jobs are
# under guard; tests/drills/README.md says what is checked, and what DRILLS may hold.
drills: $(VENV)/.dev
	@$(BIN)/python -m tests.drills --jobs $(JOBS) $(DRILLS)

# The action protocol and the watchdog, call by call, among crashes, lost answers, Slurm's own requeues and people.
model-check: $(VENV)/.dev
	@$(BIN)/python -m tests.model --runs $(MODEL_RUNS)

# Four targets, FUZZ_SECONDS for each; tests/fuzz/README.md says on which machines.
fuzz: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/fuzz.lock
	@$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

# The lock files carry hashes and no index address: they hold for every mirror.
lock: $(VENV)/.dev
	@$(BIN)/uv pip compile pyproject.toml --extra embedded --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate --quiet --output-file requirements/runtime.lock
	@$(BIN)/uv pip compile pyproject.toml --extra embedded --group dev --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate --quiet --output-file requirements/dev.lock
	@for release in 0.7 0.6; do \
	    $(BIN)/uv pip compile requirements/attrsvc-$$release.in --override requirements/attrsvc.overrides \
	    --python-version 3.12 --python-platform x86_64-manylinux_2_39 \
	    --generate-hashes --no-header --no-annotate --quiet --output-file requirements/attrsvc-$$release.lock; done
	@$(BIN)/uv pip compile --group fuzz --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate --quiet --output-file requirements/fuzz.lock

clean:
	@rm -rf $(VENV) .relight .mypy_cache .ruff_cache .pytest_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("relight needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements/runtime.lock pyproject.toml | $(VENV)/bin/python
	@echo "installing relight into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/runtime.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/.dev: requirements/dev.lock pyproject.toml | $(VENV)/bin/python
	@echo "installing relight and its development tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@ $(VENV)/.runtime
