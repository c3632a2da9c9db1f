# Everything a contributor or CI runs. `make` alone prints this list.
# Environments (.venv, .venv-3.12 …) are made when first needed and again when pyproject.toml or a requirements file changes.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
VERSIONS := 3.11 3.12 3.13
FURTHER := 3.12 3.13
WORKERS ?= auto
PYTEST_ARGS ?=
DENO := DENO_DIR=$(VENV)/.deno DENO_NO_UPDATE_CHECK=1 NO_COLOR=1 $(BIN)/deno
PYTEST := python -m pytest -n $(WORKERS) --dist worksteal

# The core has no dependency, so `pip check` is no issue here: pinned things first, then the project itself without any.
# $(1): environment, $(2): requirements file
define install
	$(1)/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r $(2)
	$(1)/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
endef

# $(1): environment, $(2): versions of Python that will do, best first
define environment
	@test -x $(1)/bin/python || { \
		python=$$(tools/find-python $(2)) \
			|| { echo "halfopen needs Python $(2) (one of them), and none was found on PATH or under ~/.pyenv/versions." >&2; exit 1; }; \
		echo "Making $(1) with $$python"; \
		"$$python" -m venv $(1) \
			|| { rm -rf $(1); echo "$$python cannot make an environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }; }
	@$(1)/bin/python -m pip --version > /dev/null 2>&1 || $(1)/bin/python -m ensurepip
endef

.PHONY: help
help:  ## Print this list
	@echo "make <target>, one of:"
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F '\t' '{ printf "  %-14s %s\n", $$1, $$2 }'

.PHONY: demo
demo: $(VENV)/.stamp-demo  ## Play a partner's outage and recovery over real HTTP (about 40 s); ARGS="--realtime" passes options on
	@$(BIN)/halfopen demo $(ARGS)

.PHONY: test
test: $(VENV)/.stamp-dev  ## Run the whole test suite; PYTEST_ARGS="-k ramp" passes options on
	$(BIN)/$(PYTEST) $(PYTEST_ARGS)

.PHONY: test-all
test-all: test  ## Run the suite, then its quick part on each further interpreter that exists here
	@for version in $(FURTHER); do \
		if tools/find-python $$version > /dev/null; then \
			$(MAKE) --no-print-directory test-on PY=$$version || exit 1; \
		else \
			echo "Python $$version is not here: not tested on it"; \
		fi; \
	done

.PHONY: test-on
test-on:  ## Run the quick part of the suite on another interpreter: make test-on PY=3.13
	@test -n "$(PY)" || { echo "Say which: make test-on PY=3.13" >&2; exit 2; }
	@$(MAKE) --no-print-directory .venv-$(PY)/.stamp-dev
	.venv-$(PY)/bin/$(PYTEST) -m "not slow and not browser" $(PYTEST_ARGS)

.PHONY: test-niquests
test-niquests: .venv-niquests/.stamp-niquests  ## Test the niquests integration, in an environment of its own: niquests replaces urllib3
	.venv-niquests/bin/python -m pytest tests/integrations/test_http_clients.py $(PYTEST_ARGS)

.PHONY: check
check: $(VENV)/.stamp-dev  ## Lint, format, types, layers, docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(DENO) check --no-remote --no-lock --quiet --config tools/console-types/deno.json src/halfopen/console/static/page.js
	$(BIN)/python docs/print_states.py --check
	$(BIN)/sphinx-build -q -E -W --keep-going -b html docs docs/_build/html
	$(BIN)/towncrier build --draft --version next > /dev/null

.PHONY: format
format: $(VENV)/.stamp-dev  ## Let ruff fix and format what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: docs
docs: $(VENV)/.stamp-dev  ## Build the documentation into docs/_build/html
	$(BIN)/python docs/print_states.py
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

.PHONY: reach
reach: $(VENV)/.stamp-dev  ## Report how often the model tests reach each state and each move
	$(BIN)/python -m tests.reach

.PHONY: mutants
mutants: .venv-mutants/.stamp-mutants  ## Plant mutants in the pure core, or in MODULE=… of it, and name those that live
	.venv-mutants/bin/python -m tests.planted.mutation $(MODULE)

.PHONY: bench
bench: .venv-rivals/.stamp-rivals  ## Measure halfopen, a bare call and the rivals in interleaved rounds
	.venv-rivals/bin/python -m benchmarks $(ARGS)

.PHONY: rivals
rivals: .venv-rivals/.stamp-rivals  ## Play the half-open faults against the rivals and write docs/comparison.md
	.venv-rivals/bin/python -m rivals $(ARGS)

.PHONY: pins
pins: $(VENV)/.stamp-uv  ## Write the requirements-*.txt anew from pyproject.toml (UPGRADE=--upgrade for newer versions)
	$(call pin,dev,--group dev --all-extras)
	$(call pin,mutants,--group dev --group mutants --all-extras)
	$(call pin,rivals,--group rivals --group build)
	$(call pin,niquests,--group niquests --group build)

define pin
	$(BIN)/uv pip compile pyproject.toml $(2) --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make pins" --quiet $(UPGRADE) -o requirements-$(1).txt

endef

.PHONY: dist
dist: $(VENV)/.stamp-dev  ## Build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

.PHONY: changelog
changelog: $(VENV)/.stamp-dev  ## Show what changelog.d will say at the next release
	@$(BIN)/towncrier build --draft --version next

.PHONY: clean
clean:  ## Remove what was built and every environment made here
	rm -rf .venv .venv-* build dist docs/_build mutants .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.stamp-dev: requirements-dev.txt pyproject.toml
	$(call environment,$(VENV),$(VERSIONS) 3.14)
	$(call install,$(VENV),requirements-dev.txt)
	@touch $@ $(VENV)/.stamp-demo

# Whoever only watches the demo needs a dozen packages, not the hundred of the test suite.
$(VENV)/.stamp-demo: pyproject.toml
	$(call environment,$(VENV),$(VERSIONS) 3.14)
	$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[cli,gateway]'
	@touch $@

$(VENV)/.stamp-uv: $(VENV)/.stamp-dev
	$(BIN)/python -m pip install -qq --disable-pip-version-check uv
	@touch $@

.venv-mutants/.stamp-mutants: requirements-mutants.txt pyproject.toml
	$(call environment,.venv-mutants,$(VERSIONS))
	$(call install,.venv-mutants,requirements-mutants.txt)
	@touch $@

.venv-rivals/.stamp-rivals: requirements-rivals.txt pyproject.toml
	$(call environment,.venv-rivals,$(VERSIONS))
	$(call install,.venv-rivals,requirements-rivals.txt)
	@touch $@

.venv-niquests/.stamp-niquests: requirements-niquests.txt pyproject.toml
	$(call environment,.venv-niquests,$(VERSIONS))
	$(call install,.venv-niquests,requirements-niquests.txt)
	@touch $@

.venv-%/.stamp-dev: requirements-dev.txt pyproject.toml
	$(call environment,.venv-$*,$*)
	$(call install,.venv-$*,requirements-dev.txt)
	@touch $@
