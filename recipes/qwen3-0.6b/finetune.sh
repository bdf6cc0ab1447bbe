#!/usr/bin/env bash
# Qwen3-0.6B supervised fine-tuning on one card, all parameters.
# Target     finetune-qwen3-0.6b
# Hardware   1 card of 16 GB (V100); newer ones of this size (RTX 4060 Ti, 4080) have bf16 and flash attention and are
#            faster
# Batch      1 data rank x 1 row x 32 accumulation = 32 a step
# Lengths    1536 tokens for the question, 2048 for a dialogue; turns that do not fit are left out and counted
# Packing    a row of 2048 tokens holds as many dialogues as fit, and none sees another; so the shorter they are, the
#            fewer steps an epoch has. `--zero_padding 0` makes each dialogue a row
# Template   Qwen3's, for answers without reasoning; for data whose answers begin with <think>, ARGS="--chat_template
#            qwen3_thinking" (docs/families.md)
# Weights    `make download MODEL=Qwen/Qwen3-0.6B`, then start with MODEL=models/Qwen3-0.6B
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=16

run recipes/methods/finetune.sh \
    --model_name_or_path Qwen/qwen3-0.6b \
    --chat_template qwen3 \
    --output_dir ./checkpoints/qwen3-0.6b-finetune \
    --src_length 1536 \
    --max_length 2048 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 32 \
    --recompute 1 \
    "$@"
