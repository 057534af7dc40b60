# `make demo` and `make test` do everything on a fresh machine with Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Tiny models: on a busy machine, threads that wait for each other cost minutes.
ONE_THREAD := OMP_NUM_THREADS=1
# Every program that a test starts would compile the libraries anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: chromium demo docs lint test tests test-gpu test-slow types fix wheel bento clean

# --overwrite: a demo of an earlier try is replaced.
demo: $(STAMP)
	$(BIN)/scda-adapt demo --out demo --overwrite

# Types and pages are checked beside the tests; what they find stands among the lines of the tests,
# and `make` ends with the name of each check that failed.
test: $(STAMP) chromium lint
	$(MAKE) --no-print-directory --keep-going --jobs 2 tests types docs

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd typings && ../$(BIN)/lint-imports --no-logo --no-cache ../pyproject.toml

tests: $(STAMP) chromium
	$(ONE_THREAD) $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not gpu"

types: $(STAMP)
	$(BIN)/mypy

# A warning is an error.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The tests of pages drive a browser.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	|| command -v google-chrome >/dev/null \
	|| if [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq chromium; \
	else echo "no Chromium found; as root: apt-get install chromium" >&2; exit 1; fi

test-slow: $(STAMP)
	$(BIN)/pytest -m slow

# The script says what is missing before anything is installed.
test-gpu:
	@PYTHON=$(PYTHON) tests/gpu/run.sh

fix: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(STAMP)
	rm -rf wheels build
	$(BIN)/python -m build --outdir wheels

bento: wheel
	$(BIN)/bentoml build

clean:
	rm -rf build dist wheels demo *.egg-info

# An old pip reads the indexes for twice as long. Most modules of the libraries are never imported;
# to compile them all would take a minute.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --no-compile --editable '.[train,gpu,dev]'
	touch $(STAMP)
