# make train: the first thing to try.  make test: everything that is checked.
# Each installs what it needs, with the exact versions of a lock file, the first time only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Compiled modules are kept, whatever the variable says: without them, starting Python and JAX takes three times as long.
unexport PYTHONDONTWRITEBYTECODE
# Tests meet Python's own buffering, as on most machines.
unexport PYTHONUNBUFFERED

# A small, quick agent: docs/expect.md shows what it does with ten seeds, on each of the two tasks.
SETTINGS := warmup=1000 hidden=64,64 layer_norm=true actor_lr=0.001 critic_lr=0.001 temperature.lr=0.001 target_rate=0.01

.PHONY: train swing-up pendulum test test-processors test-cluster test-arm test-jax test-jax-oldest test-jax-newest test-sb3 test-faults test-fuzz test-signals test-slow test-fresh check docs bench lock clean

# The task is one of PyBullet's, or one that does without, where PyBullet cannot be had.
train: $(VENV)/.train
	@$(MAKE) --no-print-directory \
		$$($(BIN)/python -c 'import pybullet_envs_gymnasium' > /dev/null 2>&1 && echo swing-up || echo pendulum)

swing-up: TASK := InvertedPendulumSwingupBulletEnv-v0 --steps 75000 --eval-every 2500
swing-up: DEMO := runs/demo
pendulum: TASK := Pendulum-v1 --steps 10000 --eval-every 500
pendulum: DEMO := runs/pendulum
swing-up pendulum:
	$(BIN)/mepg train me-sac --env $(TASK) $(SETTINGS:%=--set %) --out $(DEMO)
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

# Native code for 64-bit ARM processors, from a cross compiler, run by QEMU: some minutes.
test-arm: $(VENV)/.installed
	@for tool in aarch64-linux-gnu-g++ qemu-aarch64; do command -v $$tool > /dev/null || \
		{ echo "mepg: $$tool is missing: apt-get install g++-aarch64-linux-gnu qemu-user" >&2; exit 2; }; done
	$(QUICKLY) $(BIN)/pytest -n 2 --dist worksteal -m arm tests/native/test_arm.py

# On the locked JAX, on the oldest that pyproject.toml admits and on the newest that pip finds: some minutes.
ANY_JAX := -n 2 --dist worksteal -m '' tests/native/test_any_jax.py
OLDEST_JAX = $(shell sed -n 's/^ *"jax>=\(.*\)",$$/\1/p' pyproject.toml)
NEWEST_PYTHON = $(shell for p in python3.14 python3.13 python3.12 $(PYTHON); do \
	$$p -c 'import ensurepip, venv' 2> /dev/null && echo $$p && break; done)
test-jax: test-jax-oldest
	@$(MAKE) --no-print-directory test-jax-newest

test-jax-oldest: $(VENV)/.installed
	$(QUICKLY) $(BIN)/pytest $(ANY_JAX)
	$(call on-jax,oldest,$(PYTHON),jax==$(OLDEST_JAX))

# By itself: the newest that there is for Python 3.11 is not the newest, which scripts/fresh.sh tries with 3.13.
test-jax-newest:
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

# What a new user would do, on a minimal Debian 13 in a folder of its own: root, debootstrap, 5 GB, an hour or so.
test-fresh:
	scripts/fresh.sh

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

# What training, evaluating, plotting and filming need (requirements-train.lock), and everything (requirements.lock).
# Asked each time, because an environment may be half made, of another folder, or of a Python that is gone.
GET_PYTHON := $$(if command -v apt-get; then echo apt-get install python3 python3-venv; \
	elif command -v brew; then echo brew install python@3.13; else echo from python.org; fi | tail -n 1)
$(VENV)/.train $(VENV)/.installed: ASK
	@test "$$($(PYTHON) -c 'import sys; print(sys.version_info >= (3, 6))' 2> /dev/null)" = True || \
		{ echo "mepg: $(PYTHON) is no Python 3: name one, as in make PYTHON=python3, or get one: $(GET_PYTHON)" >&2; exit 2; }
	@$(PYTHON) scripts/set_up.py $@ $(if $(filter file,$(origin PYTHON)),,--asked)
ASK:

$(VENV)-sb3/.installed: requirements.lock pyproject.toml
	@test -x $(VENV)-sb3/bin/python || $(PYTHON) -m venv $(VENV)-sb3
	@$(VENV)-sb3/bin/python -m pip --quiet --quiet --disable-pip-version-check install --editable '.[bullet,dev,sb3]'
	@touch $@

# After a change of pyproject.toml's dependencies. One lock for all Pythons and machines: the last lines see to that.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --group fork --group instead \
	--generate-hashes --no-header --no-annotate
EXTRAS := bullet docs link minari mujoco onnx ray tune video wandb dev
WHEELS := $(BIN)/uv pip install --quiet --dry-run --no-deps --only-binary :all: --require-hashes --target $(VENV)/none
lock: $(VENV)/.train
	$(COMPILE) --upgrade $(EXTRAS:%=--extra %) --output-file requirements.lock pyproject.toml
	$(COMPILE) --extra bullet --extra link --constraint requirements.lock --output-file requirements-train.lock pyproject.toml
	for python in 3.11 3.12 3.13 3.14; do for machine in x86_64-manylinux_2_28 aarch64-manylinux_2_28 aarch64-apple-darwin; do \
		MACOSX_DEPLOYMENT_TARGET=14.0 $(WHEELS) --python-version $$python --python-platform $$machine -r requirements.lock \
			|| { echo "mepg: the new lock is not for Python $$python on $$machine"; exit 1; }; \
	done; done

clean:
	rm -rf $(VENV) $(VENV)-jax-* build dist site .mypy_cache .pytest_cache .ruff_cache
