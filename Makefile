# Each target makes its virtual environment when it is missing or older than pyproject.toml or constraints.txt.
#   make demo               audit the reference trainer with a hazard, then confirm the finding in a traced run
#   make demo HAZARD=NAME   the same with another hazard (ddp-audit demo --list names them)
#   make test               the tests, in two processes; make test ARGS='tests/cli -k json' for some of them
#   make test-fast          two minutes of tests that start no training: rules, cases, launches, reports, fixes, words
#   make test-native        the tests that trace real runs, with the native kernel; make test-python: with the Python kernel
#   make nightly            everything that takes hours: all tests, with those marked nightly, both kernels, the cases on real ranks,
#                           the forms, scripts under trace, 20,000 oracle programs, 10,000 for the machine, 20 pieces of fuzz, one piece of mutants
#   make lint               ruff and mypy
#   make agree N=10000      random programs on the machine and on real DDP; writes the result under benchmarks/
#   make oracle N=1000      random programs under CPython against the two interpreters; CORPUS=DIR takes shapes of scripts from there
#   make forms              the cases and pages rewritten in over 180 forms: what is still found; writes benchmarks/forms/forms.md; a twelfth
#                           of the programs, ARGS='--share 1' for all; make forms-run: a sample of them on two real ranks
#   make ledger CORPUS=DIR  what the readings of public scripts do not know and had to know, by its first cause
#   make agreement          scripts in many styles under trace, and how far their predictions agree; with CORPUS=DIR public ones too
#   make cases              every case and every example of a page on two real ranks; make cases NAMES='DDP401 tests/cases/ddp101'
#   make score CORPUS=DIR   the score sheet, on the cases and on the field labels; writes benchmarks/score.md
#   make wild CORPUS=DIR    first looks at public repositories: the table, and what changed since the last commit; ARGS=--fetch gets them
#   make bugbench           a benchmark of bugs for any tool: this one, other linters, what watches a run; writes
#                           benchmarks/bugbench/bugbench.md; ARGS='--rules DIR ..' with checkouts of public Semgrep rules
#   make faults             faults in real runs, beside the Flight Recorder and DETAIL; writes docs/faults.md (half an hour); then
#                           12 kinds on 4 positions of 2 and 8 ranks; writes benchmarks/fault_matrix.md; ARGS='--world 64' for more
#   make many-ranks         64 and 256 real ranks with a fault, and 10,000 simulated ones; writes benchmarks/many_ranks.md
#   make slow-ranks         how often slow ranks are found, and even runs get no verdict; writes benchmarks/slow_ranks.md
#   make mutation PIECE=K   piece K of 200 of the mutants of interpreter, comparison and trace reading: do tests notice them;
#                           writes benchmarks/mutation/mutation.md; without PIECE that of the day
#   make versions           traced programs on each version of torch that is promised; writes benchmarks/versions/versions.md (GBs)
#   make gpu-check          the checks for a machine with a GPU, in their CPU form where there is none; see benchmarks/README.md
#   make hard DIR='a b'     audits every Python file of folders alone; reports crashes, long audits and reports that differ
#   make fuzz PIECES=N      N pieces of the fuzz run (10); make fuzz PIECES=5 FROM=100 for those from 100 on
#   make tracer-cost        what the tracer costs a collective and a step; writes benchmarks/tracer-cost.md and .json
#   make coverage           what the tracer sees of each way to communicate; writes docs/coverage.md
#   make bench              what an audit costs beside other tools; TREE=DIR reads your folder; writes benchmarks/bench.md
#   make pictures           the pictures of README and guides, from what the program prints (a traced run, and Chromium for one)
#   make docs               the documentation site, in site/
#   make playground         the page that audits in the browser, in site/playground/, and its tests in Chromium (needs npm and Chromium)
#   make vscode             the extension for VS Code, bundled, and its tests against the real server (needs npm)
#   make format             ruff's formatter and safe fixes
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed.stamp
FAST := tests/rules tests/report tests/launch tests/fix tests/machine tests/cases/test_cases.py tests/docs/test_words.py

.PHONY: demo test test-fast test-native test-python nightly tracer-cost lint format agree oracle forms forms-run ledger agreement cases score wild bench bugbench coverage faults slow-ranks many-ranks mutation versions gpu-check docs playground vscode pictures clean
.DEFAULT_GOAL := test

demo: $(STAMP)
	$(BIN)/ddp-audit demo $(HAZARD)

# The tests of a file share the runs of its fixtures, so a file stays in one process; tests/conftest.py says in what order files come.
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-fast: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not traced" $(FAST) $(ARGS)

test-native test-python: $(STAMP)
	DDP_AUDIT_TEST_KERNEL=$(@:test-%=%) $(BIN)/python -m pytest -m traced $(ARGS)

# Each part runs, also after one that failed; the exit code tells whether all passed.
nightly: $(STAMP)
	failed=; for part in "test ARGS=--nightly" "test-native ARGS=--nightly" "test-python ARGS=--nightly" \
	  "oracle N=20000" "agree N=10000" "cases" "forms ARGS=--share=1" "forms-run" "agreement" "fuzz PIECES=20" "mutation"; do \
	  echo "nightly: make $$part"; $(MAKE) $$part || failed="$$failed [$$part]"; \
	done; test -z "$$failed" || { echo "nightly: failed:$$failed"; exit 1; }

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

agree: $(STAMP)
	$(BIN)/python benchmarks/agree.py $(or $(N),1000) --write

oracle: $(STAMP)
	$(BIN)/python benchmarks/oracle/oracle.py $(or $(N),1000) $(if $(CORPUS),--corpus $(CORPUS)) $(ARGS)

forms: $(STAMP)
	$(BIN)/python benchmarks/forms/forms.py --share 12 --write $(ARGS)

forms-run: $(STAMP)
	$(BIN)/python benchmarks/forms/meaning.py $(ARGS)

ledger: $(STAMP)
	$(BIN)/python benchmarks/ledger/ledger.py --corpus $(CORPUS) $(ARGS)

agreement: $(STAMP)
	$(BIN)/python tests/under_trace/under_trace.py $(if $(CORPUS),--corpus $(CORPUS)) $(ARGS)

cases: $(STAMP)
	$(BIN)/python tests/cases/run.py $(NAMES)

score: $(STAMP)
	$(BIN)/python benchmarks/score.py $(if $(CORPUS),--corpus $(CORPUS)) --write

wild: $(STAMP)
	$(BIN)/python benchmarks/wild/wild.py $(CORPUS) $(ARGS)

bench: $(STAMP)
	$(BIN)/python benchmarks/bench.py $(if $(TREE),--tree $(TREE)) --write

faults: $(STAMP)
	$(BIN)/python benchmarks/faults.py --write
	$(BIN)/python benchmarks/fault_matrix.py --write $(ARGS)

many-ranks: $(STAMP)
	$(BIN)/python benchmarks/many_ranks.py --write $(ARGS)

slow-ranks: $(STAMP)
	$(BIN)/python benchmarks/slow_ranks.py --real 10 --write $(ARGS)

mutation: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[mutation]'
	$(BIN)/python benchmarks/mutation/mutation.py $(if $(PIECE),--piece $(PIECE)) $(if $(OF),--of $(OF)) --write $(ARGS)

bugbench: $(STAMP)
	$(BIN)/python benchmarks/bugbench/bugbench.py --write $(ARGS)

versions: $(STAMP)
	$(BIN)/python benchmarks/versions/versions.py --write $(ARGS)

gpu-check: $(STAMP)
	$(BIN)/python benchmarks/gpu/check.py $(ARGS)

hard: $(STAMP)
	$(BIN)/python benchmarks/hard.py $(DIR) $(ARGS)

fuzz: $(STAMP)
	for piece in $$(seq $(or $(FROM),1) $$(($(or $(FROM),1) + $(or $(PIECES),10) - 1))); do \
	  echo "piece $$piece" && $(BIN)/python -m pytest tests/fuzz -q --hypothesis-seed=$$piece || exit 1; \
	done

tracer-cost: $(STAMP)
	$(BIN)/python -m ddp_audit.trace.build
	$(BIN)/python benchmarks/tracer_cost.py --write

coverage: $(STAMP)
	$(BIN)/python tests/trace/coverage_table.py

pictures: $(STAMP)
	$(BIN)/python docs/pictures.py

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# After make docs, which clears site/.
playground: $(STAMP)
	cd playground && npm ci --no-audit --no-fund
	$(BIN)/python playground/build.py
	cd playground && BROWSER=$(or $(BROWSER),$(shell command -v chromium || command -v chromium-browser || command -v google-chrome)) npm test

vscode: $(STAMP)
	cd editors/vscode && npm ci --no-audit --no-fund && DDP_AUDIT=$(abspath $(BIN))/ddp-audit npm test

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=/path/to/python")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
