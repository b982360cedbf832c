# Every target that needs Python builds .venv first; the stamp makes repeats fast and a changed pyproject.toml reinstalls.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON ?=

# One thread a test process: the processes already fill the cores.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 \
	XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

.PHONY: help demo test lint bench clean
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP)  ## games with a known answer, raw against projected: prints a table, writes a page under out/
	@$(BIN)/python -m hpml.cli mechanism --quick

test: $(STAMP)  ## all tests, with lint, types and the import rule
	@$(ONE_THREAD) $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

lint: $(STAMP)  ## lint, format, types and the import rule alone
	@$(BIN)/python -m pytest -n 0 tests/test_hygiene.py

bench: $(STAMP)  ## the tables of accuracy, cost and scale in benchmarks/ (long)
	@set -e; for file in $$(grep -l __main__ benchmarks/*.py); do echo "== $$file"; $(BIN)/python "$$file"; done

clean:  ## remove .venv, out/ and caches
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A moved checkout keeps its .venv but not the paths in it.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

$(STAMP): pyproject.toml
	@set -e; chosen=; bare=; seen=; \
	for name in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
		"$$name" -c 'pass' >/dev/null 2>&1 || continue; \
		seen="$$seen $$name ($$("$$name" -c 'import platform; print(platform.python_version())'))"; \
		"$$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || continue; \
		if "$$name" -c 'import venv, ensurepip' >/dev/null 2>&1; then chosen=$$name; break; fi; \
		bare=$${bare:-$$name}; \
	done; \
	if [ -z "$$chosen" ] && [ -n "$$bare" ]; then \
		echo "$$bare has no venv module: install it (Debian and Ubuntu: apt install python3-venv), then repeat." >&2; exit 1; \
	elif [ -z "$$chosen" ]; then \
		echo "hpml needs Python 3.11, 3.12 or 3.13; found:$${seen:- none}. Install one, or say make PYTHON=/path/to/python." >&2; \
		exit 1; \
	fi; \
	echo "Building $(VENV) with $$chosen: this takes a few minutes the first time."; \
	"$$chosen" -m venv --clear $(VENV); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 -e '.[test]' || { \
		echo "pip could not install the packages (its message is above): check the network or pip's index, then repeat." >&2; \
		exit 1; }; \
	$(BIN)/python -m hpml.marl.engine.install || true; \
	printf '%s\n' "$(CURDIR)" > $@
