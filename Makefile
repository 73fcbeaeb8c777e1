# `make demo` and `make test` need only Python 3.11+ and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One more than cores, up to four: some tests wait for a browser or another process.
WORKERS = $(shell $(BIN)/python -c 'import os; print(min(4, os.cpu_count() + 1))')

.PHONY: demo test pytest test-slow lint format docs bench bench-gpu bench-growth bench-check clean

demo: $(VENV)/.installed
	$(BIN)/dgmarl demo

# Side by side: type checking keeps one core busy for half a minute.
test: $(VENV)/.installed-dev
	$(MAKE) -j 2 lint pytest

pytest: $(VENV)/.installed-dev
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

# dgmarl beside other libraries, which are installed into .bench/: about 10 minutes on two idle cores. ARGS: see benchmarks/bench.py.
bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/bench.py $(ARGS)

# With the Python that has JAX for the GPU: .venv if there is one, else $(PYTHON).
bench-gpu:
	BENCH_LAP_S=0.2 $(firstword $(wildcard $(BIN)/python) $(PYTHON)) benchmarks/bench.py --gpu --compile-workers 8 $(ARGS)

bench-growth: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/growth.py $(ARGS)

bench-check: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/bench.py --check

clean:
	rm -rf $(VENV) .bench demo site .pytest_cache .ruff_cache .hypothesis

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
