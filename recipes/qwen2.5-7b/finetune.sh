#!/usr/bin/env bash
# Qwen2.5-7B supervised fine-tuning, all parameters, tensor parallel 4.
# Target     finetune-qwen2.5-7b
# Hardware   4 cards of 80 GB (A100, A800, H100)
# Batch      1 data rank x 2 rows x 32 accumulation = 64 a step
# Template   Qwen2's ChatML; ARGS="--chat_template NAME" selects another
# Weights    `make download MODEL=Qwen/Qwen2.5-7B-Instruct`, then start with MODEL=models/Qwen2.5-7B-Instruct
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=4 GPU_MEMORY_GB=80

run recipes/methods/finetune.sh \
    --model_name_or_path Qwen/qwen2.5-7b \
    --chat_template qwen2 \
    --output_dir ./checkpoints/qwen2.5-7b-finetune \
    --tensor_parallel_degree 4 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 32 \
    "$@"
