# SPDX-License-Identifier: Apache-2.0
# make demo    see it work, without a GPU
# make test    all tests that this machine allows; what it lacks is skipped with its reason
# make lint    formatting, lint, types, layers
# make bench   the table of costs
# make fuzz-kernel PROGRAMS=100000    random device programs against the kernel, as many as one asks for

SHELL := /bin/bash
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
  if $$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$python; break; fi; done)
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint bench fuzz-kernel clean python
.DELETE_ON_ERROR:

demo: .venv/demo
	@echo "what the agent pushes, here to the console, when it is told to end after two seconds:"
	@timeout --preserve-status --signal=TERM 2 $(BIN)/otel-gpu-cgroup run --simulate --exporter console
	@echo "the same host, looked at once:"
	@$(BIN)/otel-gpu-cgroup once --simulate

test: .venv/dev
	@if command -v go >/dev/null; then tests/collector/build >/dev/null; fi
	$(BIN)/python -m pytest $(TESTS)

lint: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/dev
	$(BIN)/python -m benchmarks

# as root: PROGRAMS random device programs, each loaded into the kernel and compared with it
fuzz-kernel: PROGRAMS ?= 10000
fuzz-kernel: .venv/dev
	OTEL_GPU_CGROUP_TESTS_MUST_RUN=1 OTEL_GPU_CGROUP_TEST_PROGRAMS=$(PROGRAMS) \
	  $(BIN)/python -m pytest tests/kernel/bpf/test_random_programs.py

python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with venv is needed; name it with PYTHON=..." >&2; exit 1; }

.venv/python: | python
	$(PYTHON) -m venv .venv
	$(INSTALL) --upgrade 'pip>=25.1'
	@touch $@

.venv/demo: pyproject.toml .venv/python
	$(INSTALL) --editable '.[agent]'
	@touch $@

.venv/dev: pyproject.toml .venv/python
	$(INSTALL) --editable '.[all]' --group test --group lint --group typing --group bench
	@touch $@ .venv/demo

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
