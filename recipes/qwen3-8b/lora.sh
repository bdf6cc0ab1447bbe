#!/usr/bin/env bash
# Qwen3-8B LoRA fine-tuning on one card.
# Target     lora-qwen3-8b
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10); on 40 and 80 GB FIT computes less again and is faster
# Lengths    2048 tokens for the question, 3072 for a dialogue; turns that do not fit are left out and counted. 4096 fit
#            with what recompute keeps in host memory: ARGS="--src_length 3072 --max_length 4096 --offload activations"
# Packing    a row of 3072 tokens holds as many dialogues as fit, and none sees another; so the shorter they are, the
#            fewer steps an epoch has. `--zero_padding 0` makes each dialogue a row
# Batch      1 data rank x 1 row x 16 accumulation = 16 a step
# Trains     43.6 M of 8.19 B parameters: r (inputs + outputs) for each of the 7 x 36 linear layers
# Saves      only the adapter, 175 MB; use it with make merge, make predict or make serve
# Template   Qwen3's, for answers without reasoning; for data whose answers begin with <think>, ARGS="--chat_template
#            qwen3_thinking" (docs/families.md)
# Weights    `make download MODEL=Qwen/Qwen3-8B`, then start with MODEL=models/Qwen3-8B
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/lora.sh \
    --model_name_or_path Qwen/qwen3-8b \
    --chat_template qwen3 \
    --output_dir ./checkpoints/qwen3-8b-lora \
    --src_length 2048 \
    --max_length 3072 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    "$@"
