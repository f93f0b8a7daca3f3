# Everything that a developer runs. `make help` lists it.

PYTHON ?= python3
VENV := .venv
TRAINING := .venv-horovod
LOWEST := .venv-lowest
KERAS3 := .venv-keras3
MXNET := .venv-mxnet
RAY := .venv-ray
DEEPSPEED := .venv-deepspeed
RAY_PACKAGES := "ray[train]>=2.60,<3" torch lightning transformers accelerate datasets webdataset
DEEPSPEED_PACKAGES := deepspeed==0.19.8 megatron-core==0.16.1 transformers accelerate
# Public examples train in this environment, in Horovod's and in Ray's.
EXAMPLES := .venv-examples
EXAMPLES_PACKAGES := torch lightning $(DEEPSPEED_PACKAGES) datasets timm torchvision
SERVICES := .venv-services
PEERS := .venv-bench
RELEASE := .venv-release
BIN := $(VENV)/bin
# Benchmarks import what they share with other tools from tools/.
BENCHMARKS := PYTHONPATH=tools $(BIN)/python benchmarks
SCORECARD := $(BENCHMARKS)/scorecard/scorecard.py
ARGS ?=
# What is imported is compiled then, once, also in containers whose images switch that off.
unexport PYTHONDONTWRITEBYTECODE
# On all cores, and one more for tests that wait; those that share what they have started stay together. A worker
# that crashes ends the run, with the name of its test: another one may hang on the same.
CORES := $(shell getconf _NPROCESSORS_ONLN)
IN_GROUPS := --dist loadgroup --no-loadscope-reorder --max-worker-restart 0
AT_ONCE := -n $(shell expr $(CORES) + 1) $(IN_GROUPS)
# The recorder, and what measures and simulates, are no part of the app.
NOT_THE_APP := $(addprefix --ignore=tests/,recorder training benchmarks simulator)
# Tests of ranks are in this folder, and no others: to collect all takes as long as some trainings.
OF_RANKS := tests/training
WITHOUT_RANKS := --ignore=$(OF_RANKS)
# make test leaves out variants of what another test shows; make test-all clears this.
SELECTED := not variant
SIDES := horovod-side keras3-side mxnet-side ray-side deepspeed-side
MAKE_QUIETLY := $(MAKE) --no-print-directory

.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/' | expand -t 18

demo: $(VENV)/.ready ## set up, report on the sample runs and serve the dashboard (ARGS=--no-serve ends after the reports)
	$(BIN)/stallscope demo $(ARGS)

check: $(VENV)/.ready-dev ## the inner loop: format, lint, types, docs, and one case of each short test without ranks, browser and servers
	$(MAKE_QUIETLY) --jobs 2 lint site check-tests

check-tests: $(VENV)/.ready-dev
	@# Hardly anything waits in these: one worker per core. A defect mostly shows in each case of a test, and
	@# make test and make test-all run the others.
	$(BIN)/pytest -q --one-case -n $(CORES) $(IN_GROUPS) $(WITHOUT_RANKS) -m "not (browser or services or slow or broad or variant)" $(ARGS)

test: $(VENV)/.ready-dev ## set up everything and run the tests, without variants of what another one shows (ARGS go to pytest)
ifneq ($(ARGS),)
	$(MAKE_QUIETLY) --jobs 4 ARGS= lint browser services-side $(SIDES)
	$(BIN)/pytest $(ARGS)
else
	@# Downloading, unpacking and compiling leave time for tests. A target prints when it ends.
	$(MAKE_QUIETLY) --jobs 4 --output-sync=target test-app $(SIDES) lint test-lowest-side
	@# Ranks of two trainings fill the cores: beside other tests they would only start late and time out.
	$(MAKE_QUIETLY) test-unmeasured
	@# Tests of ranks that measure take all cores for themselves, and leave them to others while they sleep.
	$(MAKE_QUIETLY) --jobs 2 --output-sync=target test-measured test-asleep
endif

test-all: ## the same with all variants: other frameworks, other numbers of ranks, more cases of the same code
	$(MAKE_QUIETLY) test SELECTED="variant or not variant"

test-app: $(VENV)/.ready-dev browser services-side
	$(BIN)/pytest $(AT_ONCE) $(WITHOUT_RANKS) -m "$(SELECTED)"

test-unmeasured: $(VENV)/.ready-dev
	@# Ranks start and wait for seconds: two trainings at once take little longer than one.
	$(BIN)/pytest -n $(CORES) $(IN_GROUPS) -m "unmeasured and ($(SELECTED))" $(OF_RANKS)

test-measured: $(VENV)/.ready-dev
	$(BIN)/pytest -m "not (unmeasured or asleep) and ($(SELECTED))" $(OF_RANKS)

test-asleep: $(VENV)/.ready-dev
	$(BIN)/pytest -m "asleep and ($(SELECTED))" $(OF_RANKS)

# Without these the tests that need them say so at the end; in CI that is an error.
horovod-side: $(VENV)/.ready
	tools/training-env.sh $(TRAINING) || test -z "$$CI"
	tools/spark-env.sh $(TRAINING) || test -z "$$CI"

keras3-side:
	tools/keras3-env.sh $(KERAS3) || test -z "$$CI"

mxnet-side:
	tools/mxnet-env.sh $(MXNET) || test -z "$$CI"

ray-side:
	tools/torch-env.sh $(RAY) $(RAY_PACKAGES) || test -z "$$CI"

deepspeed-side:
	tools/torch-env.sh $(DEEPSPEED) $(DEEPSPEED_PACKAGES) || test -z "$$CI"

services-side: $(VENV)/.ready
	PYTHON=$(BIN)/python tools/services-env.sh $(SERVICES) spark || test -z "$$CI"

lowest-side:
	$(MAKE_QUIETLY) $(LOWEST)/.ready || test -z "$$CI"

# After the app's tests, which use all cores as well.
test-lowest-side: test-app lowest-side
	test ! -f $(LOWEST)/.ready || $(MAKE_QUIETLY) test-lowest ARGS=-q

test-lowest: $(LOWEST)/.ready ## the app's own tests on the lowest versions that pyproject.toml admits
	@# What a library lacks, it lacks in most cases of a test: one of each shows it. What is long or broad, counts
	@# how often an interval holds, or ends processes, tells nothing about a library's version that other tests
	@# of the same functions do not. Spark is a library that only long tests call.
	$(LOWEST)/bin/pytest --one-case -n $(CORES) $(IN_GROUPS) -m "(spark or not (slow or broad)) and not (browser or services or extras or any_versions or variant)" $(NOT_THE_APP) $(ARGS)

lint: $(VENV)/.ready-dev ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/names.py src collector parsers dashboard tests tools benchmarks

site: $(VENV)/.ready-dev ## the docs as a site with search and a Python reference, in build/site; warnings are errors
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --jobs 2 --conf-dir tools/docs_site --doctree-dir build/doctrees . build/site

format: $(VENV)/.ready-dev ## bring the code into shape
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

samples: training-env ## record sample_logs/ again on real Horovod (about 5 minutes)
	tools/samples/record.sh

bench: $(VENV)/.ready-dev $(if $(filter --history,$(ARGS)),,training-env keras3-env mxnet-env bench-env) ## all benchmarks in one table, in about 25 minutes (ARGS="--only NAME", --quick, --keep; --history draws the kept figures)
	$(BENCHMARKS)/run.py $(ARGS)
	$(if $(findstring --keep,$(ARGS)),$(BENCHMARKS)/readme.py)

bench-env: $(VENV)/.ready ## what the benchmarks measure against, in .venv-bench
	PYTHON=$(BIN)/python tools/bench-env.sh $(PEERS)

soak: $(VENV)/.ready-dev training-env ## recorder, collector and live dashboard for 30 minutes, watched for leaks (ARGS="--minutes 2")
	$(BENCHMARKS)/soak.py $(ARGS)

# A look at a part is no page.
LOOKS := $(filter --quick --only --runs --estimate,$(ARGS))

scorecard: $(VENV)/.ready ## score the attribution on simulated and real runs (hours; ARGS=--quick only looks)
	$(SCORECARD) simulated $(ARGS)
ifeq ($(LOOKS),)
	tools/training-env.sh $(TRAINING)
	$(SCORECARD) real
	$(SCORECARD) pairs
	$(SCORECARD) hangs
	$(SCORECARD) hosts
	$(MAKE_QUIETLY) probes ARGS=
	$(MAKE_QUIETLY) causes ARGS=
	$(MAKE_QUIETLY) frameworks ARGS=
	$(MAKE_QUIETLY) sharded ARGS=
	$(SCORECARD) rise
	$(SCORECARD) page
endif

pairs: training-env ## train faulty and fixed runs in pairs, and score predicted gains (about two hours; ARGS=--estimate only looks)
	$(SCORECARD) pairs $(ARGS)

probes: training-env keras3-env ## train slow and repaired loaders in pairs, and score what input probes promise (40 minutes; ARGS=--estimate only looks)
	$(SCORECARD) probes $(ARGS)

causes: training-env keras3-env ## train with causes inside steps, of known size, and score what reports name (50 minutes; ARGS=--estimate only looks)
	$(SCORECARD) causes $(ARGS)

hangs: training-env ## hang, kill and suspend ranks of real jobs, and score how that is found (40 minutes; ARGS=--estimate only looks)
	$(SCORECARD) hangs $(ARGS)

hosts: training-env ## slow down one host of real jobs, and score how that is found and explained (70 minutes; ARGS=--estimate only looks)
	$(SCORECARD) hosts $(ARGS)

frameworks: keras3-env ray-env ## train with one slow rank under each recorder, and score how that is found (40 minutes; ARGS=--estimate only looks)
	$(SCORECARD) frameworks $(ARGS)

sharded: deepspeed-env keras3-env ## train models that up to 16 ranks share, and score which ranks, replicas, stages and hosts are named (an hour; ARGS=--estimate only looks)
	$(SCORECARD) sharded $(ARGS)

public-examples: $(VENV)/.ready training-env ray-env examples-env ## train public examples of the frameworks with the recorder (30 minutes; ARGS="--only NAME")
	$(BIN)/python tools/public_examples.py $(ARGS)

fuzz: $(VENV)/.ready-dev ## look for input that breaks a parser (ARGS=--seconds 600; --keep puts what reaches new code into tools/fuzz)
	tools/app-env.sh $(VENV) fuzz
	PYTHONPATH=tools:tests $(BIN)/python -m fuzz $(ARGS)

screenshots: $(VENV)/.ready-dev browser ## take the screenshots of the docs again
	$(BIN)/python tools/screenshots.py
	$(BIN)/python tools/terminal_picture.py

pictures: $(VENV)/.ready ## draw the pictures of docs/attribution.md again
	$(BIN)/python tools/attribution_pictures.py

matrix: $(VENV)/.ready-dev ## write into README.md and docs/recorders what the tests of recorders show
	PYTHONPATH=tests:tools $(BIN)/python -c "from training.pages import write_tables; write_tables()"

training-env: $(VENV)/.ready ## TensorFlow, PyTorch and Horovod in .venv-horovod (Horovod is compiled once)
	tools/training-env.sh $(TRAINING)

spark-env: training-env ## Spark beside Horovod, for jobs that horovod.spark runs
	tools/spark-env.sh $(TRAINING)

keras3-env: ## Keras 3 on TensorFlow, torch and JAX, Lightning, transformers and Accelerate, in .venv-keras3
	tools/keras3-env.sh $(KERAS3)

mxnet-env: ## MXNet and Horovod on Python 3.8 in .venv-mxnet (Horovod is compiled once)
	tools/mxnet-env.sh $(MXNET)

ray-env: ## Ray Train, in .venv-ray
	tools/torch-env.sh $(RAY) $(RAY_PACKAGES)

deepspeed-env: ## DeepSpeed on CPUs, alone and below Accelerate and the Trainer, in .venv-deepspeed
	tools/torch-env.sh $(DEEPSPEED) $(DEEPSPEED_PACKAGES)

examples-env: ## what public examples of PyTorch's frameworks need, in .venv-examples
	@# DeepSpeed compiles an allreduce.
	tools/system-packages.sh g++
	tools/torch-env.sh $(EXAMPLES) $(EXAMPLES_PACKAGES)

services-env: $(VENV)/.ready ## the servers that tests of collecting talk to, in .venv-services
	PYTHON=$(BIN)/python tools/services-env.sh $(SERVICES) spark

services: services-env ## start MLflow, S3, Google's and Azure's stores, sshd and Spark on free ports, until Ctrl-C or make services-stop
	PYTHONPATH=tools $(BIN)/python -m services start $(ARGS)

services-stop: ## stop what make services started
	PYTHONPATH=tools $(BIN)/python -m services stop

release-check: ## build sdist and wheel, and check them as users install them, in clean environments
	tools/release-check.sh $(RELEASE)

container-check: ## build the image of deploy/ on Debian's packages, and run its commands without root, read-only
	tools/container-check.sh $(ARGS)

browser: $(VENV)/.ready ## Debian's headless Chromium for the browser tests, where it is missing
	tools/system-packages.sh chromium-headless-shell

clean: ## remove what the other targets made, except the cache of wheels
	rm -rf $(VENV) $(TRAINING) $(KERAS3) $(MXNET) $(RAY) $(DEEPSPEED) $(EXAMPLES) $(LOWEST) $(SERVICES) $(PEERS) $(RELEASE) .stallscope reports build dist

$(VENV)/.ready: pyproject.toml tools/app-env.sh tools/installing.sh
	@# The documented exports work in it, too.
	tools/app-env.sh $(VENV) app,perfetto
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	tools/app-env.sh $(VENV) app,azure,databricks,gcs,mcp,mlflow,otlp,perfetto,s3,spark,ssh,wandb,test,dev
	@touch $@

$(LOWEST)/.ready: pyproject.toml tools/app-env.sh tools/installing.sh tools/lowest-requirements.txt
	@# Those versions have wheels for Python 3.11.
	NEWEST_PYTHON=3.11 tools/app-env.sh $(LOWEST) app,spark,test tools/lowest-requirements.txt
	@touch $@

.PHONY: help demo check check-tests test test-all test-app test-measured test-asleep test-unmeasured horovod-side keras3-side mxnet-side ray-side deepspeed-side services-side lowest-side test-lowest-side test-lowest lint site format samples bench bench-env soak scorecard pairs probes causes hangs hosts frameworks sharded public-examples fuzz screenshots pictures matrix training-env spark-env keras3-env mxnet-env ray-env deepspeed-env examples-env services-env services services-stop release-check container-check browser clean
