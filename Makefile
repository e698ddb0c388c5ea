# Everything starts from python3, pip and make. One virtual environment (.venv) serves all targets;
# each set of packages leaves a stamp in it, so that the next run starts at once.

# Two BLAS threads for each of two test workers fight over two cores: measured 10 to 100 times slower.
export OPENBLAS_NUM_THREADS ?= 1

PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
PINS := pyproject.toml constraints.txt
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	--constraint constraints.txt --build-constraint constraints.txt
# Every extra but `compare`, which has an environment of its own (`make peers`).
EXTRAS := plot,frames,cli,data,samplers,fleet

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test long slow bench peers check lint format docs gallery serve constraints clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.demo  ## Filter a series and write a report for the browser: output/report.html
	$(BIN)/psdfilter demo --out output/report.html

test: $(VENV)/.test  ## Run the fast tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not long" tests

long: $(VENV)/.test  ## Run the longer tests that have to pass before a change goes in
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "long and not slow" tests

slow: $(VENV)/.test  ## Run the slow tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow tests

bench: $(VENV)/.test  ## Measure speed and memory
	$(BIN)/python -m pytest -p no:xdist benchmarks

peers: $(PEERS)/.peers  ## Measure speed beside other filtering libraries
	$(PEERS)/bin/python -m pytest -p no:xdist -W ignore -m "slow or not slow" \
		tests/inference/exact/test_kalman.py tests/statespace/test_from_particles.py
	$(PEERS)/bin/python -m pytest -p no:xdist -W ignore -s \
		benchmarks/test_filter.py benchmarks/test_blocks.py benchmarks/test_small_noise.py \
		benchmarks/test_targets.py benchmarks/test_parameters.py

check: test long lint docs  ## Run everything that has to pass before a change goes in

lint: $(VENV)/.dev  ## Check style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.dev  ## Put the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.dev  ## Build the documentation into site/; a warning is an error
	$(BIN)/zensical build --clean --strict

gallery: $(VENV)/.dev  ## Run the code of gallery, home page and quickstart; write what it prints
	$(BIN)/python examples/build_gallery.py
	$(BIN)/python examples/show_output.py
	$(BIN)/python examples/build_theory.py

serve: $(VENV)/.dev  ## Show the documentation while writing it
	$(BIN)/zensical serve

constraints:  ## Write constraints.txt anew with the newest versions
	rm -rf .venv-constraints
	$(PYTHON) -m venv .venv-constraints
	.venv-constraints/bin/python -m pip install --quiet --upgrade pip
	.venv-constraints/bin/python -m pip install --quiet --editable '.[$(EXTRAS)]' --group dev
	{ sed -n '/^#/p' constraints.txt; \
	  .venv-constraints/bin/python -m pip list --format freeze --exclude-editable \
	    --exclude pip --exclude setuptools --exclude psdfilter; } > constraints.new
	mv constraints.new constraints.txt
	rm -rf .venv-constraints

clean:  ## Remove the environment and everything that was built
	rm -rf $(VENV) $(PEERS) .venv-constraints build dist site output .cache
	rm -rf .pytest_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An old pip knows neither dependency groups nor build constraints: renew it first.
$(VENV)/.pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.3'
	touch $@

$(VENV)/.demo: $(VENV)/.pip $(PINS)
	$(INSTALL) --editable '.[plot,cli]'
	touch $@

$(VENV)/.test: $(VENV)/.pip $(PINS)
	$(INSTALL) --editable '.[$(EXTRAS)]' --group tests
	touch $@

$(VENV)/.dev: $(VENV)/.pip $(PINS)
	$(INSTALL) --editable '.[$(EXTRAS)]' --group dev
	touch $@

# particles 0.4 says that it needs numpy<2 and works with the current one: it comes without asking
# for its dependencies, which `compare` lists. Warnings are ignored: they are about the peers' code.
$(PEERS)/.peers: $(PINS)
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.3'
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --build-constraint constraints.txt \
		--editable '.[compare,samplers,data]' --group tests
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps particles==0.4
	touch $@
