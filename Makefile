PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin

.PHONY: help demo test cluster browser mutants check lint types docs setup clean
.DEFAULT_GOAL = help

help:              ## what can be made (this list)
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup        ## zoom beside other defences on 20 real photos, and an attack on one
	$(BIN)/certmask demo

test: setup        ## run all tests
	$(BIN)/python -m pytest

cluster: setup     ## tests with Ray, whose nodes and drivers die, and of the service under load
	$(BIN)/python -m pytest -n 0 -m cluster

browser: setup     ## the page of `certmask app` in a real Chromium, which is installed where that can be done
	@test -n "$$CERTMASK_CHROMIUM" || command -v chromium >/dev/null || command -v google-chrome >/dev/null \
	  || { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; } \
	  || { sudo -n apt-get update -qq && sudo -n apt-get install -qq -y --no-install-recommends chromium; } \
	  || $(BIN)/python -m playwright install chromium
	$(BIN)/python -m pytest -n 0 tests/browser

mutants: setup     ## break the source in every way that would make a certificate false; the tests must notice
	$(BIN)/python tests/mutants.py

check: lint types test   ## style, types and tests; continuous integration runs this, make cluster and make browser

lint: setup        ## ruff: style, and whether every file is formatted
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup       ## mypy, strict
	$(BIN)/mypy

docs: setup        ## write the figures of the results files into README and docs
	$(BIN)/python docs/generate.py

setup: $(VENV)/.ready    ## the environment that everything else runs in, .venv

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:             ## remove the environment, runs and caches
	rm -rf $(VENV) runs build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
