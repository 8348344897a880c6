# Needs Python 3.11 to 3.13, make and PyPI. Another interpreter: make PYTHON=python3.12 test
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow lint references clean

demo: $(VENV)/.plot ## fit a multimodal target, save a picture under demo/
	$(BIN)/natmix demo

test: lint ## lint, types and tests
	$(BIN)/pytest -n 2

test-slow: $(VENV)/.dev ## the long checks
	$(BIN)/pytest -n 2 -m slow

lint: $(VENV)/.dev ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

references: $(VENV)/.reference ## reference samples for the MMD (some minutes)
	$(BIN)/natmix references

clean: ## remove the environment and everything generated
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are as old as the last installation: again only when pyproject.toml changes.
$(VENV)/.plot: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[plot]'
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/.reference: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[reference]'
	@touch $@

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "natmix needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	       "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Setting up $(VENV); this takes a minute."
	$(PYTHON) -m venv $(VENV)
	@touch $@
