# The two commands are `make demo` and `make test`; both need Python 3.11 or newer, and nothing else
# that is not in requirements/. Everything is installed into .venv here, with checked hashes.

VENV ?= .venv
BIN := $(VENV)/bin

# A Python that is too old or has no venv is left alone; PYTHON=/path/to/python names one instead.
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3,\
	$(if $(call usable,$(name)),$(name))))
usable = $(shell $(1) -c 'import sys, venv, ensurepip; print(sys.version_info >= (3, 11) or "")' \
	2>/dev/null </dev/null)
python = $(or $(if $(call usable,$(PYTHON)),$(PYTHON)),$(error safeser: no Python 3.11 or newer\
	with the venv module was found; install one (on Debian: python3 and python3-venv) or name it:\
	make PYTHON=/path/to/python3.11))

# $(1): the lock. Packages come in by hash; safeser itself is built by what the lock installed. What is
# imported is compiled then: pip would compile all that is installed, in half a minute.
define install
@test -x $(BIN)/python && $(BIN)/python -c '' 2>/dev/null || $(python) -m venv --clear $(VENV)
@echo "Installing $(1) into $(VENV) (once; later runs skip this)"
@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --no-compile \
	--require-hashes --requirement $(1) \
	&& $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input \
	--no-build-isolation --no-deps --editable . \
	|| { echo "safeser: the packages of $(1) could not be installed;\
	pip's reason stands above, usually the network or its index" >&2; rm -f $(VENV)/*.stamp; exit 2; }
endef

# The tests start hundreds of processes. Where the environment forbids bytecode, as containers do,
# each would compile all of safeser anew: a quarter of the time that a test with a cluster takes.
unexport PYTHONDONTWRITEBYTECODE

# With another checkout on the path, every process that starts in another folder would run that one.
unexport PYTHONPATH

# A file's tests stay in one process, longest files first: they share clusters.
BY_FILE := --dist=loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo fast test compat check docs pictures bench dask-suite differential fuzz soak mutants sweep brief trust \
	format lock clean

help:
	@sed -n 's/^## /make /p' Makefile

## demo: install what it needs, then run a real cluster under policy and attack it
demo: $(VENV)/demo.stamp
	@$(BIN)/python -m examples.demo

## fast: for every edit, three minutes: each rule, row and vector, without clusters or coverage
fast: $(VENV)/dev.stamp
	@SAFESER_TESTS=fast $(BIN)/pytest -q -m 'not cluster and not slow' --numprocesses=3 $(BY_FILE)

## test: the checks, then the whole suite; with COVERAGE=1 it is measured, worker processes included
test: check
ifdef COVERAGE
	@rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest --numprocesses=3 $(BY_FILE)
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
else
	$(BIN)/pytest --numprocesses=3 $(BY_FILE)
endif

## compat: the attacks and a program of common uses on five releases of Dask; environments in .compat
compat: $(VENV)/dev.stamp
	@$(BIN)/python -m verification.compat

## check: style, types, layering, and lines against the budgets of lines.toml
check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python -m verification.lines

## trust: print what a reviewer must trust, measured: functions, files, lines, imports; ten seconds
trust: $(VENV)/dev.stamp
	@$(BIN)/python -m verification.trust

## docs: build the site from docs/ into build/site, strictly; the packages come from requirements/docs.lock
docs: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@$(BIN)/python docs/theme/check.py build/site

## pictures: draw what commands print in a terminal, for README and the site; two minutes
pictures: $(VENV)/demo.stamp
	@$(BIN)/python docs/theme/pictures.py

## bench: measure pickles, messages, tokens, typed serialization, sealed calls, the audit log, policy, safeser:// and many workers; an hour
bench: $(VENV)/demo.stamp
	@$(BIN)/python -m verification.benchmarks.pickles
	@$(BIN)/python -m verification.benchmarks.families
	@$(BIN)/python -m verification.benchmarks.messages
	@$(BIN)/python -m verification.benchmarks.boxes
	@$(BIN)/python -m verification.benchmarks.tokens
	@$(BIN)/python -m verification.benchmarks.sealed
	@$(BIN)/python -m verification.benchmarks.serialization
	@$(BIN)/python -m verification.benchmarks.audit
	@$(BIN)/python -m verification.benchmarks.policy
	@$(BIN)/python -m verification.benchmarks.dask
	@$(BIN)/python -m verification.benchmarks.scale

## dask-suite: distributed's own tests, of its protocol and of clusters; DISTRIBUTED=path/to/checkout
dask-suite: $(VENV)/dev.stamp
	@$(BIN)/python -m verification.dask_suite "$(DISTRIBUTED)"
	@$(BIN)/python -m verification.dask_suite.clusters "$(DISTRIBUTED)"
	@$(BIN)/python -m verification.dask_suite.clusters --sealed "$(DISTRIBUTED)"

## differential: compare ten million pickles with CPython's readers; an hour, stops and resumes
differential: $(VENV)/dev.stamp
	@$(BIN)/python -m verification.differential --cases 10000000 --state .differential

## fuzz: an hour on pickles, quarters on trees and files for inspect, half on models; kept in .fuzz
fuzz: $(VENV)/dev.stamp
	@$(BIN)/python -m pip install -qq --disable-pip-version-check 'atheris>=2.3'
	@$(BIN)/python -m verification.fuzz.pickles .fuzz/pickles --seconds 3600
	@$(BIN)/python -m verification.fuzz.trees --state .fuzz/trees --seconds 900
	@$(BIN)/python -m verification.fuzz.files .fuzz/files --seconds 900
	@$(BIN)/python -m verification.fuzz.estimators .fuzz/estimators --seconds 1800

## soak: an hour of work on a cluster that is killed, cut and attacked; stops and resumes, in .soak
soak: $(VENV)/dev.stamp
	@$(BIN)/python -m verification.soak --seconds 3600 --state .soak

## mutants: break thirty guarantees, one at a time, and see which tests notice; stops and resumes, in .mutants
mutants: $(VENV)/dev.stamp
	@$(BIN)/python -m verification.mutants

## sweep: what one message costs a scheduler, one constructor a load, two sizes of a value; an hour, exits with 1
sweep: $(VENV)/dev.stamp
	@$(BIN)/python -m verification.sweep.stalls
	@$(BIN)/python -m verification.sweep.pickles
	@$(BIN)/python -m verification.sweep.products

## brief: what CI runs of these tools, so that none rots unseen; a quarter of an hour, kept in .brief
# Numbered cases of one seed, about a minute of each: a slower machine tries the same. The fuzz targets
# that follow coverage differ from run to run: here they run their seeds and a few changes of them.
brief: $(VENV)/dev.stamp
	@rm -rf .brief && mkdir .brief
	@$(BIN)/python -m pip install -qq --disable-pip-version-check 'atheris>=2.3'
	@failed=; for tool in \
	    'soak --seconds 180 --state .brief/soak' \
	    'fuzz.pickles .brief/pickles -runs=2500 -seed=1' \
	    'fuzz.trees --state .brief/trees --cases 100000' \
	    'fuzz.values --state .brief/values --cases 60000' \
	    'fuzz.files .brief/files -runs=1000 -seed=1' \
	    'fuzz.estimators .brief/estimators --cases 6000' \
	    'malformed --cases 5000' \
	    'differential --cases 100000 --state .brief/differential' \
	    'sweep.products --quick'; \
	do name=$${tool%% *}; echo "verification.$$tool"; \
	    if PYTHONHASHSEED=1 $(BIN)/python -m verification.$$tool >.brief/$$name.log 2>&1; \
	    then tail -n 1 .brief/$$name.log; else failed="$$failed $$name"; fi; \
	done; \
	for name in $$failed; do echo "verification.$$name failed:"; tail -n 20 .brief/$$name.log | cut -c 1-300; done; \
	test -z "$$failed"

## format: let ruff rewrite what it can
format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

## lock: resolve the newest allowed versions of everything anew; review the diff
lock: $(VENV)/dev.stamp
	$(BIN)/python requirements/lock.py

## clean: remove the virtual environment and what the checks left
clean:
	rm -rf $(VENV) .brief .compat .coverage .coverage.* .hypothesis .*_cache dist build

$(VENV)/demo.stamp: pyproject.toml requirements/demo.lock
	$(call install,requirements/demo.lock)
	@touch $@

# In the versions of dev.lock where both have a package, so that one environment takes both.
$(VENV)/docs.stamp: pyproject.toml requirements/docs.lock
	$(call install,requirements/docs.lock)
	@touch $@

# dev.lock holds everything that demo.lock holds, in the same versions.
$(VENV)/dev.stamp: pyproject.toml requirements/dev.lock
	$(call install,requirements/dev.lock)
	@touch $(VENV)/demo.stamp $@
