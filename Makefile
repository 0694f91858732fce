# `make demo` and `make test` need Python 3.11 or later and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help install demo quick test check docs format bench clean

help:
	@echo "make demo     train on a maze with a sparse reward, with EX2 and without, a minute, and draw both"
	@echo "make quick    lint, types, doctests and the fast tests, in two minutes or so"
	@echo "make test     the same with all tests"
	@echo "make docs     put the results into README and docs, and build the site into site/"
	@echo "make format   put the code in the project's format"
	@echo "make bench    measure novelty, speeds, densities, costs and the scores (hours)"
	@echo "make clean    remove the environment and the caches"

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt setuptools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--no-build-isolation --editable '.[dev]'
	touch $(INSTALLED)

install: $(INSTALLED)

demo: install
	rm -rf runs/demo runs/demo-plain
	$(BIN)/ex2 train sparse-maze --seed 1 --out runs/demo
	$(BIN)/ex2 train sparse-maze --bonus none --seed 1 --out runs/demo-plain
	$(BIN)/ex2 plot runs/demo
	$(BIN)/ex2 plot runs/demo runs/demo-plain

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

quick: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -m 'not slow'

test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

docs: install
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site is in site/: $(BIN)/python -m http.server --directory site"

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install
	$(BIN)/python benchmarks/novelty.py
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/survival.py
	$(BIN)/python benchmarks/steps.py
	$(BIN)/python benchmarks/density.py
	$(BIN)/python benchmarks/cost.py
	$(BIN)/ex2 sweep experiments/default.toml

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build
