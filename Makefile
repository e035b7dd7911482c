# One target per verb; `make help` lists them. Each sets up what it needs in .venv.
#
#   PYTHON     the Python that makes .venv, 3.11 or later   make lab PYTHON=python3.12
#   PIP_ARGS   more words for pip                           make lab PIP_ARGS="--proxy …"
#   LAB_ARGS   more words for JupyterLab                    make lab LAB_ARGS=--no-browser
#   CHAPTERS   which chapters                               make sync CHAPTERS=notebooks/05_*.py
#   BENCH_ARGS more words for the benchmarks                make bench BENCH_ARGS="--only alibi"
#   NAMES      which experiments                            make results NAMES="stall sqrt-d"
#   JOBS       how many processes test, one file each       make test JOBS=8

PYTHON   ?= python3
PIP_ARGS ?=
LAB_ARGS ?=
CHAPTERS ?=
BENCH_ARGS ?=
NAMES ?=
JOBS ?= 2

VENV  := .venv
BIN   := $(VENV)/bin
PIP   := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt
FIRST := notebooks/01_break_symmetry.ipynb
SITE  := _build/html
TEST  := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

# JupyterLab does not start as root (in a container, say) unless it is told to.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help lab book test site-test sync exercises results bench gpu lint types constraints clean

help:  ## list the targets
	@echo "make lab          read and run the book in JupyterLab"
	@echo "make book         build the site into $(SITE)"
	@echo "make test         test the package, and run every chapter again"
	@echo "make site-test    read the built site in a browser, with the network unplugged"
	@echo "make    both in one run"
	@echo "make sync         run the chapters that changed, and store their outputs"
	@echo "make exercises    derive the exercises' stubs from their solutions"
	@echo "make results      run every experiment again, and ship what comes out"
	@echo "make bench        measure speed, accuracy and memory beside other libraries"
	@echo "make gpu          check and time everything on a CUDA GPU, in five minutes"
	@echo "make lint types   check the style and the types of the code"
	@echo "make constraints  write down the versions that are installed"
	@echo "make clean        remove everything that was built, .venv too"

# ── set-up ────────────────────────────────────────────────────────────────────────

# Two steps, so that a reader does not wait for the tools of a tester.
$(VENV)/.reader: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "The book needs Python 3.11 or later, and '$(PYTHON)' is not."; \
	    echo "Name one that is:  make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	    echo "'$(PYTHON)' cannot make a virtual environment."; \
	    echo "On Debian and Ubuntu:  apt-get install python3-venv"; exit 1; }
	@echo "Setting up $(VENV) (some minutes and 2 GB or more, the first time only) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) $(PIP_ARGS) -e '.[book]'
	@touch $@

$(VENV)/.tester: $(VENV)/.reader
	@echo "Adding what the tests need to $(VENV) …"
	@$(PIP) $(PIP_ARGS) -e '.[book,test,peers,dev]'
	@touch $@

# ── read ──────────────────────────────────────────────────────────────────────────

lab: $(VENV)/.reader
	@$(BIN)/jupyter trust notebooks/*.ipynb > /dev/null
	@echo "Opening chapter 1 in JupyterLab; Ctrl-C here ends it."
	$(BIN)/jupyter lab --ServerApp.root_dir="$(CURDIR)" $(AS_ROOT) $(LAB_ARGS) $(FIRST)

book: $(VENV)/.reader
	@echo "Building the site; a warning is an error …"
	$(BIN)/jupyter-book build . -W -n --keep-going
	@echo "Built: open $(SITE)/index.html, or serve it:"
	@echo "    $(BIN)/python -m http.server --directory $(SITE)"

# ── check ─────────────────────────────────────────────────────────────────────────

test: $(VENV)/.tester
	@echo "Testing the package, and running every chapter again …"
	$(TEST)

site-test: $(VENV)/.tester book
	$(TEST) tests/site

lint: $(VENV)/.tester
	$(BIN)/ruff check

types: $(VENV)/.tester
	$(BIN)/mypy

# ── write ─────────────────────────────────────────────────────────────────────────

sync: $(VENV)/.reader
	$(BIN)/python book/tools/run_notebooks.py $(or $(CHAPTERS),--changed)

exercises: $(VENV)/.reader
	$(BIN)/python book/tools/exercises.py $(CHAPTERS)

results: $(VENV)/.reader
	@echo "Running every experiment in full; what is in results is not run again …"
	$(BIN)/pe-lab fetch kjv
	$(BIN)/pe-lab fetch minilm
	$(BIN)/python book/tools/ship.py $(NAMES)

bench: $(VENV)/.tester
	@echo "Measuring; leave the machine alone for some minutes …"
	$(BIN)/python -m benchmarks.run $(BENCH_ARGS)

gpu: $(VENV)/.tester
	$(BIN)/python -m benchmarks.gpu

# PyPI's torch for Linux brings CUDA; the CPU build has the same number and "+cpu".
constraints: $(VENV)/.tester
	$(BIN)/python -m pip --disable-pip-version-check freeze --exclude-editable \
	    | sed 's/+cpu$$//' > constraints.new
	@{ echo "# The versions that were tested together. Written by: make constraints"; \
	   cat constraints.new; } > constraints.txt
	@rm constraints.new
	@touch $(VENV)/.reader $(VENV)/.tester

clean:
	rm -rf $(VENV) _build build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
