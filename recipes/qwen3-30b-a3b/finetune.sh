#!/usr/bin/env bash
# Qwen3-30B-A3B supervised fine-tuning, all parameters, sharding stage 3.
# Target     finetune-qwen3-30b-a3b
# Hardware   8 cards of 80 GB (A100, A800, H100)
# Batch      8 data ranks x 4 rows x 1 accumulation = 32 a step
# Template   Qwen3's, for answers without reasoning; for data whose answers begin with <think>, ARGS="--chat_template
#            qwen3_thinking" (docs/families.md)
# Weights    `make download MODEL=Qwen/Qwen3-30B-A3B`, then start with MODEL=models/Qwen3-30B-A3B
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=8 GPU_MEMORY_GB=80

run recipes/methods/finetune.sh \
    --model_name_or_path Qwen/qwen3-30b-a3b \
    --chat_template qwen3 \
    --output_dir ./checkpoints/qwen3-30b-a3b-finetune \
    --sharding stage3 \
    --recompute 1 \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 1 \
    "$@"
