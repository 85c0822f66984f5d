# `make demo` and `make test` set up everything they need on a machine with Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
RELEASE := .venv-release
BIN := $(VENV)/bin
# Some containers set this; every process would then compile torch, Ray and the other packages again.
unexport PYTHONDONTWRITEBYTECODE
# Without --no-compile pip compiles every module of every package: two minutes, mostly for modules that are never used.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c deploy/constraints.txt
PINNED := pyproject.toml deploy/constraints.txt

.PHONY: demo drift-demo test test-cluster test-unit test-all faults hosts soak lint format bench mutants paper gpu fuzz hashes digests image licences audit sbom bandit release clean help

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

$(VENV)/.paper: $(VENV)/.dev
	$(PIP) --editable '.[cpu,dev,embed,paper]'
	touch $@

demo: $(VENV)/.run  ## Curate scikit-learn's digits, publish them, draw the report; on Ray: ARGS="--set run.executor=ray"
	$(BIN)/python -m connectors.digits demo/data
	$(BIN)/rowsieve run deploy/recipes/demo.yaml $(ARGS)

drift-demo: $(VENV)/.run  ## Curate a dataset that grows for three nights and drifts, and retrain a model on it
	rm -rf demo/drift demo/drift-out
	for night in 1 2 3; do \
	  $(BIN)/python -m connectors.drifting_digits demo/drift $$night && $(BIN)/rowsieve run deploy/recipes/nightly.yaml || exit; \
	done
	$(BIN)/rowsieve versions demo/drift-out

test: test-cluster test-unit  ## Run all tests except the slow ones; with --jobs 2 those on a cluster beside the others

test-cluster: $(VENV)/.dev
	$(BIN)/python -m pytest -p no:cacheprovider --timeout 900 tests/cluster

test-unit: $(VENV)/.dev
	$(BIN)/python -m pytest -n logical --dist loadfile --ignore tests/cluster

test-all: $(VENV)/.dev  ## Run every test, including the slow ones and `make faults`; those of `make hosts` apart
	$(BIN)/python -m pytest -m "not hosts" --hypothesis-profile full tests

faults: $(VENV)/.dev  ## Run the fault-injection tests
	$(BIN)/python -m pytest -m "faults or not faults" tests/faults tests/cluster/test_faults_ray.py

hosts: $(VENV)/.dev  ## Run on several hosts, made of Linux namespaces, and inject faults; needs root
	$(PIP) "libfaketime>=3.0"
	$(BIN)/python -m pytest -m hosts --timeout 1200 tests/hosts

soak: $(VENV)/.dev  ## Fifty simulated nights of a dataset that grows and drifts, with faults; at most 40 minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.soak $(ARGS)

lint: $(VENV)/.dev  ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev  ## Fix style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The libraries that the benchmarks compare with, without Rowsieve: some of them replace its dependencies.
$(PEERS)/.done: $(PINNED)
	$(PYTHON) -m venv $(PEERS)
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["peers"], sep="\n")' > $(PEERS)/requirements.txt
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check -c deploy/constraints.txt -r $(PEERS)/requirements.txt
	touch $@

bench: $(VENV)/.dev $(PEERS)/.done  ## Time the kernels against other libraries; one benchmark: ARGS="lp --large --write-readme"
	$(BIN)/python -m tests.benchmarks $(ARGS)

mutants: $(VENV)/.dev  ## Sample mutants of the numerical kernels into tests/mutation/RESULTS.md; longer: ARGS="--minutes 60 --workers 4"
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutation $(ARGS)

fuzz: $(VENV)/.dev  ## Fuzz what reads untrusted bytes, 10 minutes a target; ARGS="--minutes 2 --only sql,uri --keep"
	$(PIP) "atheris>=3.0"
	$(BIN)/python -m tests.fuzz $(ARGS)

# The tools of a release stand apart: they bring other versions of what Rowsieve uses.
$(RELEASE)/.done: $(PINNED)
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --no-compile "build>=1.3" "cyclonedx-bom>=7" "pip-audit>=2.10" "bandit>=1.9"
	touch $@

hashes:  ## Write deploy/hashes.txt: the pins with the hashes of their files
	$(PYTHON) -m tests.release.hashes

digests:  ## Write the digests of the base images into the Dockerfiles and manifests; needs docker and a network
	$(PYTHON) -m tests.release.images

image: $(VENV)/.dev  ## Build the images and run them without Docker: root, buildah, debootstrap, 20 GB; ARGS="--torch-wheel FILE"
	$(BIN)/python -m tests.release.build_images $(ARGS)

licences: $(VENV)/.dev  ## Write deploy/LICENCES.md
	$(BIN)/python -m tests.release.licences

audit: $(RELEASE)/.done  ## Look the pinned packages up among known advisories; with files of OSV: ARGS="--advisories all.zip"
	$(RELEASE)/bin/python -m tests.release.audit --command $(RELEASE)/bin/pip-audit $(ARGS)

sbom: $(VENV)/.run $(RELEASE)/.done  ## Write build/rowsieve.cdx.json: the packages of the environment, as CycloneDX
	mkdir -p build
	$(RELEASE)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --of JSON --output-file build/rowsieve.cdx.json $(BIN)/python

bandit: $(RELEASE)/.done  ## Look for dangerous calls with bandit, whose rules go beyond ruff's
	$(RELEASE)/bin/bandit --quiet --configfile pyproject.toml --recursive engine operators connectors

release: licences sbom bandit  ## Make the wheel, its SBOM and the licences in build/; then says what a release still lacks
	$(RELEASE)/bin/python -m build --outdir build/dist .
	cp deploy/LICENCES.md build/
	@$(RELEASE)/bin/python -m tests.release.ready --command $(RELEASE)/bin/pip-audit $(ARGS)

paper: $(VENV)/.paper  ## Recompute the papers' tables into tests/paper/*.md; resumes after an interruption
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.results
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.robust
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.downstream
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.boosted
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.eos
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.splits
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.dckm
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.baselines
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.paper.adult

gpu:  ## Check and time what runs on a GPU, with the installed Python and torch; tests need pytest and the rest too
	$(PYTHON) -m tests.benchmarks.gpu
	$(PYTHON) -m pytest -m gpu tests/gpu

clean:  ## Remove everything that these targets create
	rm -rf $(VENV) $(PEERS) $(RELEASE) .venv-orchestrators demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
