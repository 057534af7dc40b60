# `make demo` and `make test` do everything on a fresh machine with Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Tiny models: on a busy machine, threads that wait for each other cost minutes.
ONE_THREAD := OMP_NUM_THREADS=1

.PHONY: chromium demo docs test test-slow fix wheel bento clean

# --overwrite: a demo of an earlier try is replaced.
demo: $(STAMP)
	$(BIN)/scda-adapt demo --out demo --overwrite

test: $(STAMP) chromium
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd typings && ../$(BIN)/lint-imports --no-logo --no-cache ../pyproject.toml
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	$(ONE_THREAD) $(BIN)/pytest -n 2 --dist loadfile -m "not slow and not gpu"

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

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[train,gpu,dev]'
	touch $(STAMP)
