#!/usr/bin/env bash
# Qwen2.5-0.5B supervised fine-tuning on a CPU, all parameters.
# Target     finetune-qwen2.5-0.5b-cpu
# Hardware   1 process on any CPU, and 16 GB of memory
# Time       about an hour for 100,000 tokens (1,000 short dialogues) on 2 cores by the plan; more cores are faster
# Batch      1 data rank x 2 rows x 4 accumulation = 8 a step
# Lengths    384 tokens for the question, 512 for a dialogue; turns that do not fit are left out and counted
# Packing    a row of 512 tokens holds as many dialogues as fit, and none sees another; so the shorter they are, the
#            fewer steps an epoch has. `--zero_padding 0` makes each dialogue a row
# Template   Qwen2's ChatML; ARGS="--chat_template NAME" selects another
# Weights    `make download MODEL=Qwen/Qwen2.5-0.5B-Instruct`, then start with MODEL=models/Qwen2.5-0.5B-Instruct
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=0 PROCESSES=1

run recipes/methods/finetune.sh \
    --model_name_or_path Qwen/qwen2.5-0.5b \
    --chat_template qwen2 \
    --output_dir ./checkpoints/qwen2.5-0.5b-finetune-cpu \
    --src_length 384 \
    --max_length 512 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 4 \
    --num_train_epochs 1 \
    --save_steps 50 \
    --eval_steps 50 \
    --logging_steps 1 \
    --device cpu \
    "$@"
