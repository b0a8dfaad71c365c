# make demo   sets up and watches a city's traffic, from CAN to Spark; ends with a report
# make test   sets up and runs everything CI runs
VENV   ?= .venv
PYTHON ?= python3
BIN     = $(VENV)/bin
EXTRAS ?= dev
WORKERS ?= 2
SEED   ?= $(shell date +%Y%m%d)
# Many processes of Python run the same code: without compiled files each would compile it anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test test-all lint bench docs peers clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# make/make/p' Makefile
	@echo "make test-all  the long sweeps as well; writes docs/proof.md. ALL=1: also what passed"
	@echo "make bench  measures the tables of docs/ that are not of these sources"
	@echo "make docs   builds the documentation into site/"

# One stamp per set of extras: a change of pyproject.toml installs anew.
$(VENV)/.installed-%: pyproject.toml apps/traffic/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Genus needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Genus and what it needs into $(VENV): a minute or two"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]' --editable apps/traffic
	@touch $@

demo: $(VENV)/.installed-all
	$(BIN)/genus demo traffic

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --durations=10

test-all: lint
	$(BIN)/python -m tests.proof --workers $(WORKERS) --seed $(SEED) $(if $(ALL),--all) $(PARTS)

# Sparkplug clients that tests talk to; they ask for versions of protobuf and paho that the others do not take.
peers:
	$(PYTHON) -m venv $(VENV)/peers/pysparkplug
	$(VENV)/peers/pysparkplug/bin/pip install --quiet 'pysparkplug>=0.6,<0.7'
	$(PYTHON) -m venv $(VENV)/peers/mqtt-spb-wrapper
	$(VENV)/peers/mqtt-spb-wrapper/bin/pip install --quiet 'mqtt-spb-wrapper>=2.1,<2.2'

bench: $(VENV)/.installed-bench
	$(BIN)/python -m bench

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache
