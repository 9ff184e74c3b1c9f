# Everything a newcomer needs. Each target does its own set-up; nothing else has to be installed by hand
# but Python 3.11 or newer and Java 17 or newer.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Two lines of Spark tests, which often wait, and one for everything else: good for two processors and for more.
WORKERS ?= 3
# What shares a Spark or a server stays on one worker, and the order of tests/conftest.py is kept.
SPREAD := --dist loadgroup --no-loadscope-reorder
# Some containers set it. A test run starts hundreds of Pythons, and each would compile again all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup servers demo demo-kafka test test-fast sim simulate coverage chaos bench lint types doctests format \
  docs pictures clean java

help:
	@echo "make demo       a job that loses a worker half-way and proves that nothing was lost"
	@echo "make demo-kafka the same between two topics of a real broker"
	@echo "make test       everything: style, types, tests, simulation, Spark with real kills"
	@echo "make test-fast  what needs neither Java nor a server and is quick"
	@echo "make sim SEED=7 one seed of the simulator"
	@echo "make simulate   100,000 seeds; interrupt it, and the next one goes on (SEEDS=5000 for fewer)"
	@echo "make coverage   all tests once more, and the lines and branches that none of them runs"
	@echo "make chaos      the full matrix of kills on real Spark"
	@echo "make bench      all benchmarks, quick form"
	@echo "make docs       the documentation as a site, with every link checked, in build/site"
	@echo "make pictures   the pictures of the web page in docs/images, by Chromium"
	@echo "make setup      just the virtual environment .venv"
	@echo "make lint types format clean"

setup: $(STAMP)

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

# What is never imported need not be compiled.
$(STAMP): pyproject.toml | $(BIN)/python
	@echo "installing into $(VENV) (PySpark is large; this takes a minute or two) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
	@touch $(STAMP)

# Fetched once per machine, for tests that start them.
servers: | $(BIN)/python
	@$(BIN)/python tests/server_files.py

java:
	@command -v java >/dev/null 2>&1 || test -x "$$JAVA_HOME/bin/java" || { \
	  echo "Java is missing: Spark needs Java 17 or newer."; \
	  echo "Install it (Debian and Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."; exit 1; }

demo: setup java
	@$(BIN)/python -m moorline.demo

demo-kafka: setup java
	@$(BIN)/python tools/demo_kafka.py

# What takes one processor goes on beside something else that does.
test: java
	@$(MAKE) --no-print-directory -j2 setup servers
	@$(MAKE) --no-print-directory -j2 types doctests lint
	$(BIN)/python -m pytest -n $(WORKERS) $(SPREAD)

test-fast: setup
	$(BIN)/python -m pytest -n auto $(SPREAD) -m "not spark and not server and not slow and not chaos"

sim: setup
	$(BIN)/python -m moorline.testing.simulation $(or $(SEED),0)

simulate: setup
	nice $(BIN)/python -m moorline.testing.simulation.many_seeds --seeds $(or $(SEEDS),100000) --file simulation.jsonl

# The report also comes after tests that failed.
coverage: setup java
	rm -rf .coverage && mkdir .coverage
	status=0; $(BIN)/coverage run -m pytest -n $(WORKERS) $(SPREAD) || status=$$?; \
	  $(BIN)/coverage combine -q && $(BIN)/coverage report && exit $$status

chaos: setup java
	$(BIN)/python -m pytest tests/spark -m chaos -o timeout=3600

bench: setup java
	for script in bench/*.py; do $(BIN)/python $$script --quick || exit 1; done

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

doctests: setup
	$(BIN)/python -m pytest --doctest-modules moorline

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/python -m mkdocs build --strict

# Tests make pictures of more than the documentation shows.
pictures: setup
	rm -rf build/pictures
	MOORLINE_SCREENSHOTS=build/pictures $(BIN)/python -m pytest tests/page -m "not spark"
	for shown in $$(grep -oh 'page-[a-z-]*\.png' docs/guides/*.md | sort -u); do \
	  cp build/pictures/$$shown docs/images/ || exit 1; done

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage spark-warehouse
