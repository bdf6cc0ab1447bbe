#!/usr/bin/env bash
# Qwen3-8B prefix tuning on one card.
# Target     prefix-qwen3-8b
# Hardware   1 card of 40 GB (A100, A800, H100, RTX 6000 Ada)
# Batch      1 data rank x 8 samples x 2 accumulation = 16 a step
# Trains     4.72 M of 8.19 B parameters: 64 keys and values for each of 36 layers x 8 heads x 128 elements
# Saves      only the prefix, 19 MB
# Rate       3e-2: AdamW changes each element by about the learning rate a step, and a prefix starts near 0 (0.003)
# Template   Qwen3's, for answers without reasoning; for data whose answers begin with <think>, ARGS="--chat_template
#            qwen3_thinking" (docs/families.md)
# Weights    `make download MODEL=Qwen/Qwen3-8B`, then start with MODEL=models/Qwen3-8B
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=40

run recipes/methods/short-pairs.sh \
    --model_name_or_path Qwen/qwen3-8b \
    --chat_template qwen3 \
    --output_dir ./checkpoints/qwen3-8b-prefix \
    --prefix_tuning 1 \
    --num_prefix_tokens 64 \
    --per_device_train_batch_size 8 \
    --gradient_accumulation_steps 2 \
    --scale_loss 1024 \
    --recompute 0 \
    --learning_rate 3e-2 \
    --num_train_epochs 2 \
    "$@"
