#!/usr/bin/env bash
# Qwen3-4B LoRA fine-tuning on one card.
# Target     lora-qwen3-4b
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10); on 40 and 80 GB FIT computes less again and is faster
# Batch      1 data rank x 1 row x 16 accumulation = 16 a step
# Trains     33.0 M of 4.02 B parameters: r (inputs + outputs) for each of the 7 x 36 linear layers
# Saves      only the adapter, 132 MB; use it with make merge, make predict or make serve
# Template   Qwen3's, for answers without reasoning; for data whose answers begin with <think>, ARGS="--chat_template
#            qwen3_thinking" (docs/families.md)
# Weights    `make download MODEL=Qwen/Qwen3-4B`, then start with MODEL=models/Qwen3-4B
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/lora.sh \
    --model_name_or_path Qwen/qwen3-4b \
    --chat_template qwen3 \
    --output_dir ./checkpoints/qwen3-4b-lora \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    "$@"
