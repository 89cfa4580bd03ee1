# make train: the first thing to try.  make test: everything that is checked.
# Each installs what it needs, with the exact versions of a lock file, the first time only.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check

# Compiled modules are kept, whatever the variable says: without them, starting Python and JAX takes three times as long.
unexport PYTHONDONTWRITEBYTECODE

# A small, quick agent: docs/expect.md shows what it does with ten seeds.
DEMO := runs/demo
SETTINGS := warmup=1000 hidden=64,64 layer_norm=true actor_lr=0.001 critic_lr=0.001 temperature.lr=0.001 target_rate=0.01
, := ,

.PHONY: train test test-processors test-cluster test-jax test-sb3 test-faults test-fuzz test-signals test-slow check docs bench lock clean

train: $(VENV)/.train
	$(BIN)/mepg train me-sac --env InvertedPendulumSwingupBulletEnv-v0 --steps 75000 --eval-every 2500 \
		$(SETTINGS:%=--set %) --out $(DEMO)
	$(BIN)/mepg eval $(DEMO) --episodes 1 --video $(DEMO)/film.gif
	@echo "To look at: the learning curve, $(DEMO)/curve.png, and the film of the final policy, $(DEMO)/film.gif"

# Apart from those that learn, tests mostly compile: half as long without optimisations.
QUICKLY := XLA_FLAGS=--xla_backend_optimization_level=0
test: check
	$(BIN)/pytest -n 2 tests/test_learning.py
	$(QUICKLY) $(BIN)/pytest -n 2 --dist worksteal --ignore tests/test_learning.py

# The numbers once more as other processors round them, up to the instructions that XLA may use: a few minutes.
NUMERIC := tests/core/test_golden.py::test_golden_trace tests/core/test_nets.py tests/core/test_bellman.py
test-processors: $(VENV)/.installed
	for limit in SSE4_2 AVX AVX2; do \
		echo "XLA limited to $$limit"; \
		XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_max_isa=$$limit" $(BIN)/pytest -n 2 -m '' $(NUMERIC) || exit 1; \
	done

# On a Ray cluster of two nodes, one of which is killed: a minute.
test-cluster: $(VENV)/.installed
	$(BIN)/pytest -m cluster

# On the locked JAX, on the oldest that pyproject.toml admits and on the newest that pip finds: some minutes.
ANY_JAX := -n 2 --dist worksteal -m '' tests/native/test_any_jax.py
OLDEST_JAX = $(shell sed -n 's/^ *"jax>=\(.*\)",$$/\1/p' pyproject.toml)
NEWEST_PYTHON = $(shell for p in python3.14 python3.13 python3.12 $(PYTHON); do \
	$$p -c 'import ensurepip, venv' 2> /dev/null && echo $$p && break; done)
test-jax: $(VENV)/.installed
	$(QUICKLY) $(BIN)/pytest $(ANY_JAX)
	$(call on-jax,oldest,$(PYTHON),jax==$(OLDEST_JAX))
	$(call on-jax,newest,$(NEWEST_PYTHON),--upgrade jax)

# That packages cannot be fetched is no failure; then what was installed before is used, if anything was.
define on-jax
	@test -x $(VENV)-jax-$(1)/bin/python || $(2) -m venv $(VENV)-jax-$(1)
	@python=$(VENV)-jax-$(1)/bin/python; \
	$$python -m pip --quiet --quiet --disable-pip-version-check install --no-compile $(3) pytest pytest-xdist . || \
		$$python -c 'import jax, mepg, pytest, xdist' 2> /dev/null || \
		{ echo "The $(1) JAX could not be installed, so nothing was tried on it"; exit 0; }; \
	$$python -c 'import jax; print("On JAX", jax.__version__ + ", the $(1)")' && \
	PYTHONPATH=src $(QUICKLY) $$python -m pytest $(ANY_JAX)
endef

# With Stable-Baselines3 and its zoo, in a virtual environment of their own: 2 GB, a few minutes.
test-sb3: $(VENV)-sb3/.installed
	$(VENV)-sb3/bin/pytest -m sb3

# Killed, stopped, starved and damaged on purpose: under half an hour.
test-faults: $(VENV)/.installed
	$(QUICKLY) $(BIN)/pytest -n 2 --dist worksteal -m faults

# A hundred thousand inputs that nobody would write, for each loader: ten to twenty minutes.
test-fuzz: $(VENV)/.installed
	$(QUICKLY) $(BIN)/pytest -n 2 --dist worksteal -m fuzz

# Signals at random moments of runs on PyBullet: a thousand take an hour or more.
SIGNALS := 1000
test-signals: $(VENV)/.installed
	SIGNALS=$(SIGNALS) nice -n 5 $(BIN)/pytest -n 2 --dist worksteal -m signals

# That every algorithm learns, and what `make test` tries on a sample: over an hour.
test-slow: $(VENV)/.installed
	$(BIN)/pytest -n 2 --dist worksteal -m slow tests/test_learning.py
	$(QUICKLY) $(BIN)/pytest -n 2 --dist worksteal -m slow --ignore tests/test_learning.py

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The documentation as a site, in site/: open site/index.html.
docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/mepg report results --out site/runs.html
	@echo "Open site/index.html, and for all runs of results/ site/runs.html. To search in it: $(BIN)/python -m http.server --directory site, then http://localhost:8000"

bench: $(VENV)/.installed
	$(BIN)/mepg bench

# The package itself is linked, so that edits take effect at once. Python compiles a module when it is first imported.
define set-up
	@$(PYTHON) -c 'import sys, ensurepip, venv; assert sys.version_info[:2] == (3, 11)' 2>/dev/null || \
		{ echo "mepg needs Python 3.11 with venv: on Debian, apt-get install python3.11 python3.11-venv;" \
		       "elsewhere, make PYTHON=/path/to/python3.11"; exit 2; }
	@echo "Setting up $(VENV) with the exact versions of $(1): once, $(2)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --no-compile --requirement $(1)
	@$(PIP) install --no-deps --no-build-isolation --editable .
endef

# What training, evaluating, plotting and filming need: a part of requirements.lock.
$(VENV)/.train: requirements-train.lock pyproject.toml
	$(call set-up,requirements-train.lock,half a minute or more$(,) 0.9 GB)
	@touch $@

$(VENV)/.installed: requirements.lock pyproject.toml
	$(call set-up,requirements.lock,two minutes or so$(,) 2 GB)
	@touch $(VENV)/.train $@

$(VENV)-sb3/.installed: requirements.lock pyproject.toml
	@test -x $(VENV)-sb3/bin/python || $(PYTHON) -m venv $(VENV)-sb3
	@$(VENV)-sb3/bin/python -m pip --quiet --quiet --disable-pip-version-check install --editable '.[bullet,dev,sb3]'
	@touch $@

# After a change of pyproject.toml's dependencies; takes some minutes.
COMPILE := $(BIN)/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	--no-header --no-annotate --allow-unsafe --generate-hashes
EXTRAS := bullet docs mujoco onnx ray tune video wandb dev
lock: $(VENV)/.installed
	$(PIP) install pip-tools
	$(COMPILE) --upgrade $(EXTRAS:%=--extra %) --output-file requirements.lock pyproject.toml
	$(COMPILE) --extra bullet --extra link --constraint requirements.lock --output-file requirements-train.lock pyproject.toml

clean:
	rm -rf $(VENV) $(VENV)-jax-* build dist site .mypy_cache .pytest_cache .ruff_cache
