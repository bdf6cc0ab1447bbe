#!/usr/bin/env bash
# ERNIE-4.5-0.3B supervised fine-tuning on a CPU, all parameters.
# Target     finetune-ernie4.5-0.3b-cpu
# Hardware   1 process on any CPU, and 8 GB of memory
# Moments    of AdamW in 16 bits (docs/low-memory.md)
# Batch      1 data rank x 1 row x 8 accumulation = 8 a step
# Lengths    384 tokens for the question, 512 for a dialogue; turns that do not fit are left out and counted
# Packing    a row of 512 tokens holds as many dialogues as fit, and none sees another; so the shorter they are, the
#            fewer steps an epoch has. `--zero_padding 0` makes each dialogue a row
# Template   ERNIE 4.5's; ARGS="--chat_template NAME" selects another
# Weights    `make download MODEL=baidu/ERNIE-4.5-0.3B-PT`, then start with MODEL=models/ERNIE-4.5-0.3B-PT
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=0 PROCESSES=1

run recipes/methods/finetune.sh \
    --model_name_or_path baidu/ernie-4.5-0.3b \
    --chat_template ernie4_5 \
    --output_dir ./checkpoints/ernie4.5-0.3b-finetune-cpu \
    --src_length 384 \
    --max_length 512 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 8 \
    --recompute 1 \
    --optim adamw_16bit_moment \
    --num_train_epochs 1 \
    --save_steps 50 \
    --eval_steps 50 \
    --logging_steps 1 \
    --device cpu \
    "$@"
