# Two commands: `make demo` trains the built-in example, `make test` passes the tests. Each sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test cover lint docs clean
demo: $(VENV)/.demo
	$(BIN)/etude train examples/native/digits.yaml

test: $(VENV)/.test lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests -n 3 --dist worksteal

# The tests with the lines that none of them reaches.
cover: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests -n 3 --dist worksteal --cov --cov-report=term:skip-covered

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.demo
	$(BIN)/pip install -q -c constraints.txt -e ".[docs]"
	$(BIN)/python docs/make_reference.py
	$(BIN)/mkdocs build -q

$(VENV)/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/pip install -q -c constraints.txt -e ".[test]"
	touch $@

clean:
	rm -rf $(VENV) runs site
