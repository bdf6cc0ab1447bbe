#!/usr/bin/env bash
# ERNIE-4.5-0.3B supervised fine-tuning on one card, all parameters.
# Target     finetune-ernie4.5-0.3b
# Hardware   1 card of 16 GB (V100); newer ones of this size (RTX 4060 Ti, 4080) have bf16 and flash attention and are
#            faster
# Batch      1 data rank x 2 rows x 16 accumulation = 32 a step
# Lengths    1536 tokens for the question, 2048 for a dialogue; turns that do not fit are left out and counted
# Packing    a row of 2048 tokens holds as many dialogues as fit, and none sees another; so the shorter they are, the
#            fewer steps an epoch has. `--zero_padding 0` makes each dialogue a row
# Template   ERNIE 4.5's; ARGS="--chat_template NAME" selects another
# Weights    `make download MODEL=baidu/ERNIE-4.5-0.3B-PT`, then start with MODEL=models/ERNIE-4.5-0.3B-PT
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=16

run recipes/methods/finetune.sh \
    --model_name_or_path baidu/ernie-4.5-0.3b \
    --chat_template ernie4_5 \
    --output_dir ./checkpoints/ernie4.5-0.3b-finetune \
    --src_length 1536 \
    --max_length 2048 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 16 \
    --recompute 1 \
    "$@"
