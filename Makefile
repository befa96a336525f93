# Everything runs in .venv, made from uv.lock. `make help` lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/sh

PYTHON ?= python3
UV_VERSION := 0.13.0
# Uses the uv on the PATH; without one, pip installs it into a folder of its own.
UV := $(shell command -v uv 2>/dev/null || echo .venv-uv/bin/uv)
BIN := .venv/bin
PYTEST_ARGS ?=
# A test starts hundreds of processes, and one that imports TVM takes three times as long where nobody keeps what Python
# compiles: containers often forbid it, and uv installs sources alone.
unexport PYTHONDONTWRITEBYTECODE
# Tests of one file stay together (they share servers), and the longest folders come first.
# Tests wait half of their time, so there are two workers per core.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((2 * n)))
SIDE_BY_SIDE := -n $(JOBS) --dist loadfile --no-loadscope-reorder -o tmp_path_retention_policy=failed
# Tests write to /dev/shm if it has 4 GB, because flushes to a disk take three times as long as the database tests' own work.
# Set TMPDIR to keep the files of a failed test.
MEMORY = awk '$$2 == "/dev/shm" && $$4 !~ /noexec/' /proc/mounts 2>/dev/null | grep -q . && df -k /dev/shm | awk 'NR == 2 && $$4 > 4e6 {print "/dev/shm"}'
SCRATCH = $(or $(TMPDIR),$(shell $(MEMORY)),/tmp)
PYTEST = scratch=$$(mktemp -d "$(SCRATCH)/tunefarm-tests.XXXXXX") && chmod 755 "$$scratch" && \
	trap $(if $(TMPDIR),:,'rm -rf "$$scratch"') EXIT && trap 'exit 130' INT TERM && TMPDIR=$$scratch $(BIN)/python -m pytest

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.venv-uv/bin/uv:
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/pip install --quiet 'uv==$(UV_VERSION)'

# The stamp keeps later runs offline: uv is asked again only when the lock or the project file changed.
.venv/.synced: uv.lock pyproject.toml | $(filter .venv-uv/bin/uv,$(UV))
	$(UV) sync --locked --all-extras --no-extra baselines --no-extra onednn --no-python-downloads
	@touch $@

# What tests need and users do not: OpenVINO and LiteRT (236 MB), and CUDA's compiler (350 MB), which builds for GPUs without one.
.venv/.synced-tests: .venv/.synced
	$(UV) sync --locked --all-extras --group cuda --no-python-downloads
	@touch $@

.PHONY: setup
setup: .venv/.synced ## Make the environment from the lock file

.PHONY: test-setup
test-setup: .venv/.synced-tests ## Add what the tests need: the runtimes that artifacts are timed beside, CUDA's compiler

.PHONY: wheel
wheel: setup ## Build the wheel into dist/
	$(UV) build --wheel --out-dir dist

.PHONY: demo
demo: setup ## Tune a ResNet-18 end to end on this machine (about three minutes)
	$(BIN)/python examples/demo.py $(DEMO_ARGS)

# Which of the long tests and of the cases of large matrices run: no, all, or a Git revision (those that a change since then
# can break). tests/support/exhaustive.py
EXHAUSTIVE ?= no
# Where all run, the engine's children are fresh interpreters, as users' are. tests/support/children
FRESH = $(if $(filter all,$(EXHAUSTIVE)),--fresh-children)
.PHONY: test
test: test-setup ## Run the checks, then the tests
	@$(MAKE) --no-print-directory --jobs 2 check .rewritten
	@$(PYTEST) $(SIDE_BY_SIDE) --exhaustive=$(EXHAUSTIVE) $(FRESH) $(PYTEST_ARGS)

.PHONY: test-all
test-all: ## The same, with all long tests and all cases of large matrices
	@$(MAKE) --no-print-directory test EXHAUSTIVE=all

.PHONY: extra-tests
extra-tests: test-setup ## Run only the long tests and large matrices that `make test` leaves out
	@$(PYTEST) $(SIDE_BY_SIDE) --exhaustive=$(if $(filter no,$(EXHAUSTIVE)),all,$(EXHAUSTIVE)) --extra $(PYTEST_ARGS)

# pytest rewrites the tests' assertions when it reads them, for a quarter of a minute. Each of its workers would, at the same
# time; so one does beforehand, while mypy has the other core. The tests report their own errors.
.PHONY: .rewritten
.rewritten: test-setup
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true

# Where the seconds go: see docs/testing.md.
CPU_REPORT ?= cpu-report.jsonl
.PHONY: cpu-report
cpu-report: test-setup ## Run the tests, and list the processor seconds of each file
	@rm -f $(CPU_REPORT)
	@$(PYTEST) $(SIDE_BY_SIDE) --exhaustive=$(EXHAUSTIVE) $(FRESH) -p cpu_report --cpu-report $(abspath $(CPU_REPORT)) $(PYTEST_ARGS); \
		$(BIN)/python tests/support/cpu_report.py $(CPU_REPORT)

.PHONY: check
check: setup ## Formatting, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: fast
fast: test-setup ## Run the unit tests alone
	@$(PYTEST) tests/unit $(SIDE_BY_SIDE) $(PYTEST_ARGS)

# One after another, for hours: what each comes to is a line of JSON in SOAK_REPORT. See docs/reliability.md.
SOAK ?= big
SOAK_REPORT ?= soak.jsonl
.PHONY: soak
soak: test-setup ## Kill and freeze everything, for hours (SOAK=middle takes some minutes)
	TUNEFARM_SOAK=$(SOAK) TUNEFARM_SOAK_REPORT=$(SOAK_REPORT) $(BIN)/python -m pytest --exhaustive=all tests/soak tests/e2e/web/test_many_events.py --timeout 14400 $(PYTEST_ARGS)

# Some ten minutes on two cores. See docs/security.md; FUZZ_ARGS='--first 2000' takes others.
.PHONY: mutants
mutants: test-setup ## Take 2,000 changed model files through the import
	PYTHONPATH=tests/support:tests/support/networks $(BIN)/python -m mutants --count 2000 --output mutants.jsonl $(FUZZ_ARGS)

.PHONY: gpu-check
gpu-check: setup ## What needs an NVIDIA GPU: run it on a machine that has one, and it says what it proved
	$(BIN)/python -m benchmarks.gpu.check

# GPU_REPORT_ARGS='--minutes 30' benchmarks for longer than five minutes.
.PHONY: gpu-setup
gpu-setup: setup ## CUDA's compiler for the environment, where the machine has none (350 MB)
	$(UV) sync --quiet --locked --all-extras --no-extra baselines --no-extra onednn --group cuda

.PHONY: gpu-report
gpu-report: setup ## One file to send back from a machine with an NVIDIA GPU: versions, what held, a table, logs
	$(BIN)/python -m benchmarks.gpu.report $(GPU_REPORT_ARGS)

.PHONY: format
format: setup ## Format the code and fix what lint can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: docs
docs: setup ## Write the reference pages that are generated from code
	$(BIN)/python docs/generate.py

.PHONY: clean
clean: ## Remove the environments and caches
	rm -rf .venv .venv-uv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
