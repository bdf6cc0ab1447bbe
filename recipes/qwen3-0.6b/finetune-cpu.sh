#!/usr/bin/env bash
# Qwen3-0.6B supervised fine-tuning on a CPU, all parameters.
# Target     finetune-qwen3-0.6b-cpu
# Hardware   1 process on any CPU, and 16 GB of memory
# Batch      1 data rank x 1 row x 8 accumulation = 8 a step
# Lengths    384 tokens for the question, 512 for a dialogue; turns that do not fit are left out and counted
# Packing    a row of 512 tokens holds as many dialogues as fit, and none sees another; so the shorter they are, the
#            fewer steps an epoch has. `--zero_padding 0` makes each dialogue a row
# Template   Qwen3's, for answers without reasoning; for data whose answers begin with <think>, ARGS="--chat_template
#            qwen3_thinking" (docs/families.md)
# Weights    `make download MODEL=Qwen/Qwen3-0.6B`, then start with MODEL=models/Qwen3-0.6B
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=0 PROCESSES=1

run recipes/methods/finetune.sh \
    --model_name_or_path Qwen/qwen3-0.6b \
    --chat_template qwen3 \
    --output_dir ./checkpoints/qwen3-0.6b-finetune-cpu \
    --src_length 384 \
    --max_length 512 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 8 \
    --recompute 1 \
    --num_train_epochs 1 \
    --save_steps 50 \
    --eval_steps 50 \
    --logging_steps 1 \
    --device cpu \
    "$@"
