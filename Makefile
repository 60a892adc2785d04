# Two commands: `make demo` trains the built-in example, `make test` passes the tests. Each sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PACKAGES = packages/etude packages/etude-openmm packages/etude-libai packages/etude-mcquic
EDITABLE = $(PACKAGES:%=-e %)
PROJECTS = $(PACKAGES:%=%/pyproject.toml)

.PHONY: chromium demo shape test test-all test-engine matrix matrix-oldest matrix-newest pytest pytest-all cover lint docs projects release clean
demo: $(VENV)/.demo
	$(BIN)/etude train examples/native/digits.yaml

# The linters run beside the tests, which leave a core idle while they wait for processes.
test: $(VENV)/.test projects chromium
	$(MAKE) -j2 lint pytest

# The tests without sampling: every slip of the fingers in every example.
test-all: $(VENV)/.test projects chromium
	$(MAKE) -j2 lint pytest-all

# What fails beside others is run once more, alone: tests of real processes share two cores here.
pytest: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 4 --dist worksteal || \
	  OMP_NUM_THREADS=1 $(BIN)/python -m pytest --last-failed --last-failed-no-failures none

pytest-all: $(VENV)/.test
	ETUDE_TEST_ALL=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal

# The tests of the engine alone, in an environment without any guest.
test-engine: $(VENV)-engine/.test chromium
	OMP_NUM_THREADS=1 $(VENV)-engine/bin/python -m pytest packages/etude -n 4 --dist worksteal

# The tests with the oldest version of torch that pyproject.toml promises and with the newest one of the index. Each has an
# environment of its own; the builds for CUDA, which the index may have alone, run on the CPU.
OLDEST = $(shell sed -n 's/.*"torch>=\([0-9.]*\)".*/\1/p' packages/etude/pyproject.toml)
MATRIX_TESTS ?= packages tests --ignore=tests/projects

matrix: matrix-oldest matrix-newest

matrix-oldest matrix-newest: matrix-%: $(VENV)-%/.test chromium
	$(VENV)-$*/bin/python -c "import torch; print('torch', torch.__version__)"
	OMP_NUM_THREADS=1 $(VENV)-$*/bin/python -m pytest $(MATRIX_TESTS) -n 2 --dist worksteal

$(VENV)-oldest/.test: TORCH = torch==$(OLDEST)
$(VENV)-newest/.test: TORCH = torch>=$(OLDEST)
$(VENV)-oldest/.test $(VENV)-newest/.test: $(PROJECTS) constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	grep -v "^torch==" constraints.txt > $(@D)/constraints.txt
	$(@D)/bin/pip install -q -c $(@D)/constraints.txt "$(TORCH)" $(PACKAGES:%=-e %[test])
	touch $@

# The tests with the lines that none of them reaches.
cover: $(VENV)/.test chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal --cov --cov-report=term:skip-covered

# The real projects (mmcls, mmdet …) that tests/projects runs, each in a folder of a cache outside of the repository.
projects: $(VENV)/.test
	$(BIN)/python tests/projects/fetch.py

# The board is tested in a real browser.
chromium:
	@command -v chromium chromium-browser google-chrome > /dev/null || \
	  $(if $(filter 0,$(shell id -u)),,sudo) sh -c "apt-get update -qq && apt-get install -y -qq chromium" || \
	  echo "the tests of the board need chromium: install it" >&2

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.demo
	$(BIN)/pip install -q -c constraints.txt "mkdocs-material>=9.5"
	$(BIN)/python docs/make_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q

$(VENV)/.demo: $(PROJECTS) constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt $(EDITABLE)
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/pip install -q -c constraints.txt $(PACKAGES:%=-e %[test])
	touch $@

$(VENV)-engine/.test: packages/etude/pyproject.toml constraints.txt
	test -x $(VENV)-engine/bin/python || $(PYTHON) -m venv $(VENV)-engine
	$(VENV)-engine/bin/pip install -q -c constraints.txt -e packages/etude[test]
	touch $@

# A wheel that installs and runs the demo in a fresh environment.
release: $(VENV)/.test
	rm -rf dist
	for package in $(PACKAGES); do $(BIN)/python -m build --wheel --sdist --outdir dist $$package; done
	$(PYTHON) -m venv dist/.try
	dist/.try/bin/pip install -q -c constraints.txt dist/*.whl
	cd dist && .try/bin/etude train ../examples/native/digits.yaml --fast-dev-run
	rm -rf dist/.try

# The numbers of the house: rooms, circles of imports, places that know of dialects, the way of a step.
shape: $(VENV)/.demo
	$(BIN)/python bench/shape.py

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest runs site
