# `make help` lists what there is. Everything runs from a fresh checkout: Python 3.11 and Java 17 are all it needs.
.DEFAULT_GOAL := help
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := views serving speed_layer batch_layer flows infra

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Make the venv from the hashed lock and fetch the jars; instant when done
	@python=$$(sh infra/preflight.sh) && "$$python" infra/setup_venv.py $(VENV)
	@$(MAKE) --no-print-directory jars

.PHONY: jars
jars: ## Fetch the jars, SHA-256 checked; instant when done
	@$(BIN)/python -m infra.jars

.PHONY: demo
demo: setup ## Tell the whole story on an empty folder, in about three minutes
	@$(BIN)/seam demo

.PHONY: test
test: setup ## Run all tests
	@$(BIN)/python -m pytest

.PHONY: test-fast
test-fast: setup ## Run the tests that need no Java
	@$(BIN)/python -m pytest -m "not spark and not stack and not docker"

.PHONY: lint
lint: setup ## Check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

.PHONY: format
format: setup ## Format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: types
types: setup ## Check the types, strictly
	@$(BIN)/mypy $(addprefix -p ,$(PACKAGES))

.PHONY: bench
bench: setup ## Measure throughput, latency and memory
	@$(BIN)/python -m benchmarks

.PHONY: up
up: setup ## Start the stack
	@$(BIN)/seam up

.PHONY: down
down: ## Stop the stack
	@$(BIN)/seam down

.PHONY: status
status: ## Say how the stack is
	@$(BIN)/seam status

.PHONY: lock
lock: ## Resolve the dependencies anew (needs uv) and the jars
	uv pip compile pyproject.toml --extra dev --generate-hashes --no-emit-index-url --no-strip-extras --no-header \
		--python-version 3.11 -o requirements.lock
	@$(BIN)/python -m infra.jars --write-lock

.PHONY: clean
clean: ## Remove caches; what the stack stored in .seam is kept
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## Also remove the venv and the jars
	@rm -rf $(VENV) .jars
