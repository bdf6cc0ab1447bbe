# The public face. `make` prints what there is. Each recipe X of recipes/*/*.sh is five targets: X runs it,
# rehearse-X runs it on a CPU with a tiny model of the same family, print-X prints its command, plan-X the memory and
# time that it needs, k8s-X a Kubernetes manifest.
#
# MODEL DATA OUTPUT GPUS DEVICES GPU_MEMORY_GB PROCESSES NNODES RANK MASTER NETWORK CONFIG ARGS, given as
# `make X GPUS=4`, reach the recipe through the environment, where make puts every variable of its command line. CONFIG
# counts there alone: other tools have it in the environment, too (CONFIG=Release).

.DEFAULT_GOAL := help
# Paths are those of this folder.
$(if $(wildcard launch/recipe.sh),,$(error make -f works in the Makefile's own folder alone. Say \
    make -C $(dir $(lastword $(MAKEFILE_LIST))) $(MAKECMDGOALS)))
# What is typed as $(x) make would fill in, or run, before any command sees it.
$(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(if \
    $(findstring $$,$(subst $$$$,,$(value $(name)))),$(error $(name)=$(value $(name)): make takes $$ as its own. Write $$$$ for it))))
ifeq ($(origin CONFIG),environment)
unexport CONFIG
endif
.PHONY: help setup setup-gpu lock doctor lint regenerate release-check test test-long test-nightly demo demo-finetune demo-align demo-chat demo-tools demo-grpo dashboard custom-ops fit studio config-from measures certify download import export merge predict serve evaluate ledger card push rounding clean

# With exec a command takes the place of make's shell, so that a signal to make reaches it; it knows make by LAUNCH_MAKE.
EXEC := exec env LAUNCH_MAKE=$$PPID
# Values of variables reach commands by the environment: --flag:NAME and :NAME are filled in there.
START := launch/environment/start.py
RUN := $(EXEC) .venv/bin/python $(START)
DATA_TOOLS := clean tokenizer tokenize verify inspect merge split blend sft preference
FIND_PYTHON := sh launch/environment/find_python.sh
quoted = '$(subst ','\'',$(1))'
# For what needs no packages, and so no set-up.
PLAIN = python=$$($(FIND_PYTHON) plain) && $(EXEC) "$$python" $(START)
TARGETS := launch/environment/targets.py
# name:file:target, for each target and for each other name that a recipe has (# Alias). None without a Python, which
# whatever is asked for then says.
NAMES := $(shell python=$$(PYTHON=$(call quoted,$(PYTHON)) $(FIND_PYTHON) plain 2>/dev/null) && "$$python" -S $(TARGETS) recipes)
part = $(word $(1),$(subst :, ,$(2)))
target_of = $(foreach name,$(NAMES),$(if $(filter $(1),$(call part,1,$(name))),$(call part,3,$(name))))

# $(1): variables that a target cannot do without. Those not given are an error, except where its help is asked for.
needs = $(if $(findstring --help,$(ARGS)),,$(foreach name,$(1),$(if $($(name)),,\
    echo 'error: $(name): not given. Say make $@ $(name)=..., as make help has it.' >&2; exit 2;)))

help:
	@$(PLAIN) $(TARGETS) help

setup: ## make .venv (every target that needs it does this by itself)
	@python=$$($(FIND_PYTHON)) && $(EXEC) "$$python" $(START) launch/environment/setup.py --device:DEVICE

setup-gpu: ## Paddle's GPU build, CUDA=12.6|12.9|13.0 (untested: no cards)
	@python=$$($(FIND_PYTHON)) && $(EXEC) "$$python" $(START) launch/environment/setup.py --device gpu --cuda:CUDA

doctor: ## check Python, packages, cards, disk, ports; a fix for each fault
	@python=$$($(FIND_PYTHON) 2>/dev/null) || python=python3; $(EXEC) "$$python" $(START) launch/commands/doctor.py :ARGS...

demo: setup ## pretrain a small LLaMA on real text, from nothing (5-10 min)
	@$(RUN) launch/commands/demo.py :ARGS...

demo-finetune: setup ## then LoRA, prefix and full on it, compared (10 min)
	@$(RUN) launch/commands/demo.py finetune :ARGS...

demo-align: setup ## then DPO on it: a preference that can be checked (5 min)
	@$(RUN) launch/commands/demo.py align :ARGS...

demo-chat: setup ## a real 135M model: ask, LoRA, ask again, GGUF (5 min)
	@$(RUN) launch/commands/demo.py chat :ARGS...

demo-tools: setup ## the same model learns to call tools, by the server (5 min)
	@$(RUN) launch/commands/demo.py tools :ARGS...

demo-grpo: setup ## a tiny model learns by rewards alone: 7 % to over 90 % (3 min)
	@$(RUN) launch/commands/demo.py grpo :ARGS...

fit: ## fastest ways on GPUS=2 of GPU_MEMORY_GB=24, MODEL=, METHOD=lora
	@$(PLAIN) launch/commands/fit.py --model:MODEL --gpus:GPUS --gpu_memory_gb:GPU_MEMORY_GB --card:CARD \
	    --nnodes:NNODES --network:NETWORK --method:METHOD

studio: setup ## a page to plan a run, start it, watch it (on 127.0.0.1)
	@$(RUN) launch/commands/studio.py :ARGS...

config-from: ## ARGS=FILE of PaddleNLP, PaddleFormers: the command it means
	@$(PLAIN) launch/commands/config_from.py :ARGS...

measures: ## MODEL= GPUS=2 GPU_MEMORY_GB=24: what saves memory, its price
	@$(call needs,MODEL) $(PLAIN) launch/commands/guide.py measures :MODEL --gpus:GPUS \
	    --gpu_memory_gb:GPU_MEMORY_GB --card:CARD :ARGS...

certify: setup ## check what only a card runs, in 12 min on 8 cards (QUICK=1, FULL=1)
	@$(RUN) launch/commands/certify.py $(if $(QUICK),--quick) $(if $(FULL),--full) :ARGS...

# What it was called, when it measured one recipe.
.PHONY: verify-gpu
verify-gpu: export ONLY = $(if $(RECIPE),--only=recipe-$(or $(strip $(call target_of,$(RECIPE))),$(RECIPE)))
verify-gpu: setup
	@echo "make verify-gpu is another name of make certify$${ONLY:+ ARGS=$$ONLY}" >&2; \
	    $(RUN) launch/commands/certify.py :ONLY :ARGS...

download: setup ## MODEL=OWNER/NAME [FROM=modelscope OUTPUT=...]: from a hub
	@$(call needs,MODEL) $(RUN) launch/commands/download.py :MODEL --from:FROM --output:OUTPUT :ARGS...

import: setup ## MODEL=FOLDER of Hugging Face or x.gguf [OUTPUT=]: make it ours
	@$(call needs,MODEL) $(RUN) launch/commands/import_weights.py :MODEL :OUTPUT :ARGS...

export: setup ## MODEL=FOLDER [FORMAT=gguf QUANT=q4_k_m]: to HF or llama.cpp
	@$(call needs,MODEL) $(RUN) launch/commands/export.py :MODEL :OUTPUT --format:FORMAT --quant:QUANT :ARGS...

push: setup ## MODEL=EXPORTED TO=hf:OWNER/NAME (or modelscope:, aistudio:)
	@$(call needs,MODEL TO) $(RUN) launch/commands/push.py :MODEL :TO :ARGS...

merge: setup ## ADAPTER=LORA [MODEL=BASE] OUTPUT=DIRECTORY: one model of two
	@$(call needs,ADAPTER OUTPUT) $(RUN) launch/commands/merge.py --model_name_or_path:MODEL \
	    --adapter_path:ADAPTER --output_dir:OUTPUT :ARGS...

predict: setup ## MODEL=... [ADAPTER=...] [DATA=FILE OUTPUT=FILE]: ask a model
	@$(call needs,MODEL) $(RUN) launch/commands/predict.py --model_name_or_path:MODEL \
	    --adapter_path:ADAPTER --data_file:DATA --output_file:OUTPUT :ARGS...

serve: setup ## MODEL=... [ADAPTER="NAME=DIR ..." GPUS=2]: REST, gRPC, page
	@$(call needs,MODEL) $(RUN) launch/commands/serve.py --model_name_or_path:MODEL \
	    --adapter:ADAPTER... --tensor_parallel_degree:GPUS :ARGS...

rounding: setup ## MODEL= DATA=: what a base in 8 or 4 bits adds to the loss
	@$(call needs,MODEL DATA) $(RUN) launch/commands/quantization_loss.py --model_name_or_path:MODEL \
	    --dataset_name_or_path:DATA :ARGS...

evaluate: setup ## MODEL=... [ADAPTER=...] TASKS="mmlu=FOLDER ...": benchmarks
	@$(if $(COMPARE),,$(call needs,MODEL TASKS)) $(RUN) launch/commands/evaluate.py \
	    $(if $(COMPARE),--compare:COMPARE...,--model_name_or_path:MODEL --tasks:TASKS...) \
	    --adapter_path:ADAPTER --output_file:OUTPUT --tensor_parallel_degree:GPUS :ARGS...

ledger: setup ## OUTPUT=FOLDER of a run: which samples it has read, and the proof
	@$(call needs,OUTPUT) $(RUN) launch/commands/ledger.py :OUTPUT :ARGS...

card: setup ## OUTPUT=FOLDER of a run: what its model's README.md says
	@$(call needs,OUTPUT) $(RUN) launch/commands/card.py :OUTPUT :ARGS...

data: ## text to training data: data-X ARGS="...", X is one of these
	@$(PLAIN) $(TARGETS) data $(DATA_TOOLS)

.PHONY: data $(DATA_TOOLS:%=data-%)
$(DATA_TOOLS:%=data-%): data-%: setup
	@$(RUN) -m data_tools.$* :ARGS...

custom-ops: setup ## build fused RMSNorm (fused_ln) into .venv: faster steps
	@$(RUN) launch/environment/custom_ops.py :ARGS...

dashboard: setup ## loss curves in the browser (VisualDL on 127.0.0.1)
	@$(RUN) launch/commands/dashboard.py :ARGS...

# Most tests start processes and wait for them; fixtures of a file are made once, and tests/conftest.py orders the files.
# ARGS="-n 0": one after the other.
TWO_FILES_AT_A_TIME := -n 2 --dist loadfile --no-loadscope-reorder
COMPARE_TOO = $(RUN) -m pip install --quiet --disable-pip-version-check -r requirements/compare.txt

lint: setup ## style, mistakes, types: ruff, pyright, hadolint
	@$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements/lint.txt
	@$(RUN) -m ruff check
	@$(RUN) -m ruff format --check
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(RUN) -m pyright
	@$(EXEC) .venv/bin/hadolint .devcontainer/Dockerfile

regenerate: setup ## write all generated files anew; CHECK=1: fail if one was old
	@$(RUN) -m docs.tools.regenerate $(if $(CHECK),--check)

test: setup ## what a contributor runs (at most 5 minutes on 2 cores)
	@$(RUN) -m pytest -m "not long and not nightly" $(TWO_FILES_AT_A_TIME) :ARGS...

test-long: setup ## more; installs torch and transformers to compare with
	@$(COMPARE_TOO)
	@$(RUN) -m pytest -m "long and not nightly" $(TWO_FILES_AT_A_TIME) :ARGS...

test-nightly: setup ## [SLICE=3]: the rest, hours, or one slice in 8 minutes
	@$(COMPARE_TOO)
	@$(RUN) -m pip download --quiet --disable-pip-version-check --no-deps --dest .venv/templates trl==1.16.0
	@$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .venv/paddleformers \
	    -r requirements/paddleformers.txt
	@files=$$($(if $(SLICE),.venv/bin/python -m tests.tiers "$$SLICE",echo tests)) && \
	    seed=$$(git rev-list --count --first-parent HEAD 2>/dev/null || echo 0) && \
	    $(RUN) -m pytest -m nightly --hypothesis-seed=$$seed $(TWO_FILES_AT_A_TIME) $$files :ARGS...

release-check: ## what must pass before a version is tagged (hours; needs git)
	@$(EXEC) bash .ci/release-check

lock: setup ## requirements/*.in -> *.lock, with uv (ARGS=--upgrade: newer)
	cd requirements && uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --overrides overrides.txt \
	    --output-file cpu.lock cpu.in dev.in $$ARGS
	cd requirements && uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	    --output-file hubs.lock hubs.in $$ARGS
	cd requirements && uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	    --output-file grammar.lock grammar.in $$ARGS
	cd requirements && uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	    --output-file evaluate.lock evaluate.in $$ARGS
	$(RUN) launch/environment/pins.py paddlepaddle < requirements/cpu.lock > requirements/gpu.lock

clean: ## remove what builds and tests left; no checkpoints, no data
	rm -rf build/tests build/lib* build/bdist* build/temp* build/setup.* *.egg-info .pytest_cache
	find launch data_tools tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A target that is not there: the nearest that is.
.DEFAULT:
	@$(PLAIN) $(TARGETS) unknown $(call quoted,$@) $(DATA_TOOLS)

# The forms of a recipe. $(1): its name, $(2): its file, $(3): its target; another name says that one, and goes on.
define recipe_forms
.PHONY: $(1) rehearse-$(1) print-$(1) plan-$(1) k8s-$(1)
$(1): setup
	@$(call other_name,$(1),$(3))$$(stray_config)$$(EXEC) ACTION=run bash $(2)
rehearse-$(1): setup
	@$(call other_name,$(1),$(3))$$(stray_config)$$(EXEC) ACTION=rehearse bash $(2)
print-$(1): setup
	@$(call other_name,$(1),$(3))$$(stray_config)$$(EXEC) ACTION=print bash $(2)
plan-$(1):
	@$(call other_name,$(1),$(3))$$(stray_config)$$(EXEC) ACTION=plan bash $(2)
k8s-$(1): setup
	@$(call other_name,$(1),$(3))$$(stray_config)$$(EXEC) ACTION=k8s bash $(2)
endef
other_name = $(if $(filter-out $(2),$(1)),echo "make $$@ is another name of make $$(@:%$(1)=%$(2))" >&2; )
stray_config = $(if $(filter environment,$(origin CONFIG)),echo "CONFIG of the environment is not read: make $@ CONFIG=FILE takes a file of arguments" >&2; )
$(foreach name,$(NAMES),$(eval $(call recipe_forms,$(call part,1,$(name)),$(call part,2,$(name)),$(call part,3,$(name)))))
