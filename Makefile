# Everything a newcomer needs. Each target does its own set-up; nothing else has to be installed by hand
# but Python 3.11 or newer and Java 17 or newer.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test test-fast sim chaos bench lint types format clean java

help:
	@echo "make demo       a job that loses a worker half-way and proves that nothing was lost"
	@echo "make test       everything: style, types, tests, simulation, Spark with real kills"
	@echo "make test-fast  what needs no Java"
	@echo "make sim SEED=7 one seed of the simulator"
	@echo "make chaos      the full matrix of kills on real Spark"
	@echo "make bench      all benchmarks, quick form"
	@echo "make setup      just the virtual environment .venv"
	@echo "make lint types format clean"

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (PySpark is large; this takes a minute or two) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

java:
	@command -v java >/dev/null 2>&1 || test -x "$$JAVA_HOME/bin/java" || { \
	  echo "Java is missing: Spark needs Java 17 or newer."; \
	  echo "Install it (Debian and Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."; exit 1; }

demo: setup java
	@$(BIN)/python -m moorline.demo

test: setup java lint types
	$(BIN)/python -m pytest --doctest-modules moorline
	$(BIN)/python -m pytest

test-fast: setup
	$(BIN)/python -m pytest -m "not spark and not chaos"

sim: setup
	$(BIN)/python -m moorline.testing.simulation $(or $(SEED),0)

chaos: setup java
	$(BIN)/python -m pytest tests/spark -m chaos

bench: setup java
	for script in bench/*.py; do $(BIN)/python $$script --quick || exit 1; done

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
