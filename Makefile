# One entry point for people and CI. Everything runs from .venv, which `make setup` builds from hashes.
PYTHON ?= python3
BIN := .venv/bin
PYTEST_WORKERS ?= 3

.PHONY: help setup test lint types contracts pytest demo drill proof proof-sim clean

help: ## Show what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/.ready ## Make .venv from requirements.txt (hashes required) and install the project; a minute or two

.venv/.ready: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed"'
	@echo 'installing into .venv: this takes a minute or two, once'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

test: setup lint types contracts pytest ## Lint, types, import contracts and every test but the long proofs

# Two calls: crash points and the window table are listed by name, the other tests are counted.

lint: setup ## ruff: lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy, strict
	$(BIN)/mypy

contracts: setup ## Who may import whom
	$(BIN)/lint-imports

NAMED := tests/crash tests/activities/test_window_table.py
PYTEST := $(BIN)/pytest -m "not proof" -n $(PYTEST_WORKERS) --dist worksteal

pytest: setup ## Every test but the long proofs
	$(PYTEST) -q $(addprefix --ignore=,$(NAMED))
	$(PYTEST) -v $(NAMED)

demo: setup ## The whole promise, with a kill -9 in the middle; a minute once setup is done
	$(BIN)/chargeonce demo

drill: setup ## An incident of 2,000 charges: all dies, hands do harm, and reconcile tells and mends it
	$(BIN)/pytest -q -s -m proof tests/stories/test_incident_drill.py

proof: setup ## The long proofs
	$(BIN)/pytest -m proof

proof-sim: setup ## The simulator: shapes, faults, failure modes, speed, and a million objects (half an hour)
	$(BIN)/pytest -q -s tests/stripe_sim/test_shapes.py tests/failure_modes/test_catalogue.py
	$(BIN)/python -m deploy.stripe_sim.proof

clean: ## Remove what `make` made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
