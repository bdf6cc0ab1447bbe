#!/usr/bin/env bash
# Qwen2.5-7B LoRA fine-tuning on one card.
# Target     lora-qwen2.5-7b
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10); on 40 and 80 GB FIT computes less again and is faster
# Batch      1 data rank x 1 row x 16 accumulation = 16 a step
# Trains     40.4 M of 7.62 B parameters: r (inputs + outputs) for each of the 7 x 28 linear layers
# Saves      only the adapter, 161 MB; use it with make merge, make predict or make serve
# Template   Qwen2's ChatML; ARGS="--chat_template NAME" selects another
# Weights    `make download MODEL=Qwen/Qwen2.5-7B-Instruct`, then start with MODEL=models/Qwen2.5-7B-Instruct
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/lora.sh \
    --model_name_or_path Qwen/qwen2.5-7b \
    --chat_template qwen2 \
    --output_dir ./checkpoints/qwen2.5-7b-lora \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    "$@"
