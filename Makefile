# `make demo` and `make test` need only Python 3.11+ and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One more than cores, up to four: some tests wait for a browser or another process.
WORKERS = $(shell $(BIN)/python -c 'import os; print(min(4, os.cpu_count() + 1))')

.PHONY: demo test test-slow lint format docs bench clean

demo: $(VENV)/.installed
	$(BIN)/dgmarl demo

test: $(VENV)/.installed-dev lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
	TEST_OPTIMISATION=1 $(BIN)/python -m pytest -m 'rounding and not slow' -n auto --maxprocesses 2 tests/credit tests/parity

test-slow: $(VENV)/.installed-dev
	TEST_OPTIMISATION=1 $(BIN)/python -m pytest -m slow -n auto --maxprocesses 2 --dist loadfile

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/envs.py
	$(BIN)/python benchmarks/credit.py
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/adapters.py

clean:
	rm -rf $(VENV) demo site .pytest_cache .ruff_cache .hypothesis

# The stamps make a second call start at once; they are older than pyproject.toml when the dependencies may have changed.
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dgmarl needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.installed
