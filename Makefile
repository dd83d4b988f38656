# `make lab` measures, `make test` tests; both make first what they need.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.SUFFIXES:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# The installed package is what runs, not the tree, in subprocesses too.
export PYTHONSAFEPATH := 1

PYTHON ?=
ARGS ?=
SECONDS ?= 60
VENV := .venv
PY := $(VENV)/bin/python

C_FILES := $(wildcard src/*.[ch] tests/c/*.[ch] tests/c/fuzz/*.[ch])
SOURCES := setup.py pyproject.toml MANIFEST.in README.md $(wildcard src/*.[ch]) \
    $(sort $(shell find cowlab experiments -name '*.py*' -not -name '*.py[cod]'))

.PHONY: help lab build test test-all test-c cross fuzz lint format coverage \
    bench clean FORCE

help:  ## this text
	@echo "make TARGET [PYTHON=python3.13] [ARGS='further arguments']"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' \
	    $(firstword $(MAKEFILE_LIST))

lab: build  ## set up, build, and measure: the main experiment
	@$(PY) -m cowlab run refcount-privatisation $(ARGS)

build: $(VENV)/.built  ## the virtual environment .venv with cowlab in it

test: build  ## set up, build, and run the tests; ARGS go to pytest
	@$(PY) -m pytest $(ARGS)

test-all:  ## the tests on every other supported CPython
	@tools/test-all $(ARGS)

test-c: build  ## only the C parts, as plain programs under sanitizers
	@$(PY) -m pytest tests/c $(ARGS)

cross: $(VENV)/.made  ## compile for aarch64 and run the plain C tests under qemu
	@tools/cross $(PY)

fuzz: $(VENV)/.made  ## feed the C parsers random input for SECONDS=60
	@$(PY) tools/fuzz.py --seconds $(SECONDS) $(ARGS)

lint: $(VENV)/.lint  ## style, types, warnings, layers, what a release holds
	@tools/lint $(PY)

format: $(VENV)/.lint  ## let ruff and clang-format do it
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(C_FILES)

coverage: $(VENV)/.made  ## lines that the tests reach, of Python and of C
	@tools/coverage $(PY) $(ARGS)

bench: build  ## the benchmark suite: each budget as a ratio
	@$(PY) bench $(ARGS)

clean:  ## remove what was built; .venv too
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache \
	    .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find cowlab -name '*.so' -delete

# --- stamps: each is written when all before it went well --------------------

$(VENV)/.made: pyproject.toml tools/setup tools/requirements.py $(if $(PYTHON),FORCE)
	@tools/setup $(PYTHON)

# Changes when a source comes or goes.
$(VENV)/.sources: $(VENV)/.made FORCE
	@echo $(SOURCES) | cmp -s - $@ || echo $(SOURCES) >$@

$(VENV)/.built: $(VENV)/.made $(VENV)/.sources $(SOURCES)
	@rm -f $@ && touch $@.new
	@tools/build $(PY)
	@mv $@.new $@

$(VENV)/.lint: $(VENV)/.made
	@$(PY) tools/requirements.py lint | \
	    xargs -d '\n' $(PY) -m pip install -q --disable-pip-version-check
	@touch $@

FORCE:
