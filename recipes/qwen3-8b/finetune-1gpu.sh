#!/usr/bin/env bash
# Qwen3-8B supervised fine-tuning, all parameters, on one card.
# Target     finetune-qwen3-8b-1gpu
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10), 32 GB of host memory
# Batch      1 data rank x 3 rows of 2,048 tokens; each parameter is updated within the backward pass
# Optimizer  AdamW with moments in 8 bits in host memory; the weights in bfloat16, rounded up or down by chance
# Template   Qwen3's, for answers without reasoning; for data whose answers begin with <think>, ARGS="--chat_template
#            qwen3_thinking" (docs/families.md)
# Weights    `make download MODEL=Qwen/Qwen3-8B`, then start with MODEL=models/Qwen3-8B
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/finetune-1gpu.sh \
    --model_name_or_path Qwen/qwen3-8b \
    --chat_template qwen3 \
    --output_dir ./checkpoints/qwen3-8b-finetune-1gpu \
    --per_device_train_batch_size 3 \
    "$@"
