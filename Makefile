# Needs Python 3.11 to 3.13, make and PyPI. Another interpreter: make PYTHON=python3.12 test
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GMMVI := .venv-gmmvi
PACKAGE := pyproject.toml hatch_build.py build_native.py readme_links.py $(wildcard src/natmix/*/native/c/*)

.PHONY: demo test tests wheel release-check test-slow test-matrix test-stan sanitize lint references bench bench-gpu bench-posteriors bench-posteriordb bench-quick docs site tutorials requirements licences audit notebooks gallery clean

demo: $(VENV)/.plot ## fit a multimodal target, save a picture under demo/
	$(BIN)/natmix demo

test: lint tests ## lint, types and tests

tests: $(VENV)/.dev ## the tests alone
	$(BIN)/pytest -n 2 --dist loadfile

test-slow: $(VENV)/.dev ## the long checks, and the contract of all combinations with the programs as shipped
	$(BIN)/pytest -n 2 --dist loadfile -m slow --ignore tests/modules/test_contract.py
	NATMIX_TEST_AS_SHIPPED=1 $(BIN)/pytest -n 2 -m 'slow or not slow' tests/modules/test_contract.py

# Some of it: make test-matrix MATRIX='--python 3.12 --jax newest'
test-matrix: ## the tests on every Python that is installed, with the oldest and the newest jax (an hour)
	$(PYTHON) tests/matrix.py $(MATRIX)

lint: $(VENV)/.dev ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Some of it: make sanitize SANITIZE='--only thread --step 9'
sanitize: $(VENV)/.dev ## all native kernels under the address, undefined behaviour and thread sanitizers (Linux)
	$(BIN)/python tests/kernels/native/sanitizers/run.py $(SANITIZE)

test-stan: $(VENV)/.stan ## Stan programs: tests and tutorial (needs a C++ compiler)
	$(BIN)/pytest tests/models/test_stan.py
	$(BIN)/python docs/tutorials/stan_period.py

docs: $(VENV)/.dev site ## the site, and every code block, link and command of README and docs, each page in a fresh process
	$(BIN)/pytest tests/docs -n 2 -m 'slow or not slow'

site: $(VENV)/.docs ## the pages as a site with search and API reference, under site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html."

tutorials: $(VENV)/.dev ## run docs/tutorials, which check their own results
	set -e; for script in docs/tutorials/*.py; do echo "== $$script"; MPLBACKEND=agg $(BIN)/python $$script; done

# Some of them: make notebooks NOTEBOOKS='evidence simulator'
notebooks: $(VENV)/.stan $(VENV)/.docs ## execute docs/tutorials as notebooks and keep their outputs (needs a C++ compiler)
	$(BIN)/python docs/notebooks.py $(NOTEBOOKS)

gallery: $(VENV)/.dev ## the pictures of docs/gallery and docs/equations.md
	set -e; for script in docs/gallery/*.py docs/modules/pictures.py; do echo "== $$script"; MPLBACKEND=agg $(BIN)/python $$script; done

references: $(VENV)/.reference ## reference samples for the MMD (some minutes)
	$(BIN)/natmix references

# Some of it: make bench BENCH='--only gmm20 --seconds 20'. All options: BENCH=--help
bench: $(VENV)/.bench $(GMMVI)/.installed ## the reference gmmvi and natmix side by side on the CPU, and ours by phase (hours)
	$(BIN)/python benchmarks/speed/side_by_side $(BENCH)
	$(if $(BENCH),,$(BIN)/python benchmarks/speed/phases.py --write results)

# On a machine with an NVIDIA GPU; another version of CUDA: make bench-gpu CUDA=cuda13
CUDA ?= cuda12
bench-gpu: $(VENV)/.bench ## one iteration on the GPU, by phase, against what the device can do
	$(BIN)/python -m pip install --quiet 'jax[$(CUDA)]'
	$(BIN)/python benchmarks/speed/gpu.py --write results $(BENCH)

# Some of them: make bench-quick BENCH='--only funnel3'
bench-quick: $(VENV)/.dev ## a dozen default fits in about five minutes, appended to a history; flags what got worse
	$(BIN)/python benchmarks/quality/quick_bench.py $(BENCH)

# One problem: make bench-posteriors BENCH='--only funnel'. Also there: python benchmarks/quality/starts.py
bench-posteriors: $(VENV)/.reference ## natmix, AutoMultivariateNormal and Pathfinder against known posteriors (hours)
	$(BIN)/python -m pip install --quiet 'blackjax>=1.2'
	$(BIN)/python benchmarks/quality/posteriors --write results $(BENCH)

# A clone of https://github.com/stan-dev/posteriordb: make bench-posteriordb DATABASE=~/posteriordb
# Some of it: BENCH='--only eight_schools kilpisjarvi --seeds 0'. It goes on where it was interrupted.
bench-posteriordb: $(VENV)/.stan ## natmix and Stan's NUTS on posteriordb (hours; needs a C++ compiler)
	$(if $(DATABASE),,$(error Give a clone of stan-dev/posteriordb: make bench-posteriordb DATABASE=path))
	$(BIN)/python -m pip install --quiet pystan 'setuptools<81'
	$(BIN)/python benchmarks/quality/posteriordb $(DATABASE) $(BENCH)

wheel: $(VENV)/.created ## the package with its native kernels for this machine, under dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

# Keep what was built: make release-check RELEASE='--keep dist'
release-check: $(VENV)/.created ## build source distribution and wheel, install each into an empty environment, run README's example
	$(BIN)/python tests/release_check.py $(RELEASE)

UV := $(VENV)-tools/bin/uv
requirements: $(VENV)-tools/.installed ## list the development tools anew, with hashes, for each Python (PyPI)
	set -e; for version in 3.11 3.12 3.13; do $(UV) pip compile pyproject.toml --quiet --upgrade \
	  --extra dev --extra docs --python-version $$version --universal \
	  --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command 'make requirements' \
	  --output-file requirements/dev-$$version.txt; done

licences: $(VENV)/.dev ## list the licences of what natmix depends on, in docs/licences.md
	$(BIN)/python requirements/licences.py

audit: $(VENV)-tools/.installed ## known vulnerabilities of what requirements/ lists; fails where they cannot be looked up
	$(VENV)-tools/bin/python requirements/audit.py $(AUDIT)

clean: ## remove the environment and everything generated
	rm -rf $(VENV) $(VENV)-* $(GMMVI) benchmarks/out demo site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are as old as the last installation: again only when pyproject.toml or the C sources change.
$(VENV)/.plot: $(VENV)/.created $(PACKAGE)
	$(BIN)/python -m pip install --quiet --editable '.[plot]'
	@touch $@

# As listed in requirements/, with hashes; where those files are not to be had, as pyproject.toml allows. With
# LOCKED=1 that is an error.
$(VENV)/.dev: $(VENV)/.created $(PACKAGE) $(wildcard requirements/*)
	$(BIN)/python requirements/install.py $(if $(LOCKED),--locked)
	@touch $@

$(VENV)/.docs: $(VENV)/.created $(PACKAGE)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

$(VENV)/.stan: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[stan]'
	@touch $@

$(VENV)/.reference: $(VENV)/.created $(PACKAGE)
	$(BIN)/python -m pip install --quiet --editable '.[reference]'
	@touch $@

$(VENV)/.bench: $(VENV)/.created $(PACKAGE)
	$(BIN)/python -m pip install --quiet --editable '.[plot,problems]'
	@touch $@

$(VENV)-tools/.installed: | $(VENV)/.created
	$(PYTHON) -m venv $(VENV)-tools
	$(VENV)-tools/bin/python -m pip install --quiet 'uv>=0.9' 'pip-audit>=2.9'
	@touch $@

# The reference has an environment of its own: TensorFlow stays away from natmix.
$(GMMVI)/.installed: | $(VENV)/.created
	$(PYTHON) -m venv $(GMMVI)
	$(GMMVI)/bin/python -m pip install --quiet 'gmmvi==1.1' 'tensorflow==2.21.*' 'tf_keras==2.21.*' \
	  'tensorflow-probability==0.25.*' psutil
	@touch $@

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "natmix needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	       "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Setting up $(VENV); this takes a minute."
	$(PYTHON) -m venv $(VENV)
	@touch $@
