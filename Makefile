# Two commands matter: `make quickstart` and `make test`. Both make the environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: install quickstart test test-long test-slow audit-corpus unit check format clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "flightschool needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(INSTALLED)

quickstart: $(INSTALLED)
	$(BIN)/flightschool quickstart --workspace quickstart

test: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder tests/unit tests/integration

test-long: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder -m 'long and not slow'

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

audit-corpus: $(INSTALLED)
	$(BIN)/python -m flightschool.testing.corpus_measure tests/corpus/audit/fifth --replies tests/corpus/audit/fifth.replies

unit: $(INSTALLED)
	$(BIN)/python -m pytest tests/unit tests/architecture

check: $(INSTALLED)
	$(BIN)/ruff format --check src tests recipes
	$(BIN)/ruff check src tests recipes
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/architecture

format: $(INSTALLED)
	$(BIN)/ruff format src tests recipes
	$(BIN)/ruff check --fix src tests recipes

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache
