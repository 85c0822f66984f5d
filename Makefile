# The front door. `make demo` and `make test` set everything up on a machine with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
BIN := $(VENV)/bin
# Set in some containers; every process would then compile torch, Ray and the rest anew.
unexport PYTHONDONTWRITEBYTECODE
# Without --no-compile pip compiles every module of every package: two minutes, for modules mostly never used.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c deploy/constraints.txt
PINNED := pyproject.toml deploy/constraints.txt

.PHONY: demo nights test test-all faults lint format bench paper gpu clean help

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(VENV)/.run: $(PINNED)
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[cpu]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) --editable '.[cpu,dev,embed]'
	touch $@

demo: $(VENV)/.run  ## Curate scikit-learn's digits, publish them, draw the report
	$(BIN)/python -m connectors.digits demo/data
	$(BIN)/rowsieve run deploy/recipes/demo.yaml

nights: $(VENV)/.run  ## Three nights of a dataset that drifts: increments, retraining, who is champion
	rm -rf demo/nights demo/nights-out
	for night in 1 2 3; do \
	  $(BIN)/python -m connectors.drifting_digits demo/nights $$night && $(BIN)/rowsieve run deploy/recipes/nightly.yaml || exit; \
	done
	$(BIN)/rowsieve versions demo/nights-out

test: $(VENV)/.dev  ## Run all tests but the slow ones
	$(BIN)/python -m pytest tests/cluster
	$(BIN)/python -m pytest -n logical --dist loadfile --ignore tests/cluster

test-all: $(VENV)/.dev  ## Run every test, the slow ones and all of `make faults` too
	$(BIN)/python -m pytest -m "" --hypothesis-profile full tests

faults: $(VENV)/.dev  ## Run every test that kills, stops, starves or misleads a run
	$(BIN)/python -m pytest -m "faults or not faults" tests/faults tests/cluster/test_faults_ray.py

lint: $(VENV)/.dev  ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev  ## Mend style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The peers alone, without Rowsieve: some of them replace what it needs.
$(PEERS)/.done: $(PINNED)
	$(PYTHON) -m venv $(PEERS)
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["peers"], sep="\n")' > $(PEERS)/requirements.txt
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check -c deploy/constraints.txt -r $(PEERS)/requirements.txt
	touch $@

bench: $(VENV)/.dev $(PEERS)/.done  ## Time the kernels against their peers; one of them: ARGS="lp --large --write-readme"
	$(BIN)/python -m tests.benchmarks $(ARGS)

paper: $(VENV)/.dev  ## Recompute the papers' tables into tests/paper/*.md; goes on where it was stopped
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.results
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.robust
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.downstream
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.boosted
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.eos
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.splits
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.dckm

gpu:  ## Check and time the kernels on a GPU, with the Python and torch that are there
	$(PYTHON) -m tests.benchmarks.gpu

clean:  ## Remove everything that was made here
	rm -rf $(VENV) $(PEERS) demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
