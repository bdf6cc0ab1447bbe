#!/usr/bin/env bash
# ERNIE-4.5-0.3B preference tuning (DPO) on one card, all parameters.
# Target     dpo-ernie4.5-0.3b
# Hardware   1 card of 16 GB (V100); newer ones of this size (RTX 4060 Ti, 4080) have bf16 and flash attention and are
#            faster
# Batch      1 data rank x 1 sample of 2 rows x 32 accumulation = 32 a step
# Loss       sigmoid, beta 0.1; ARGS="--loss_type ipo", hinge, simpo, or (docs/align.md)
# Reference  computed once, before training, and kept on disk (docs/align.md)
# Rate       5e-7, as is usual for DPO of all parameters: a twentieth of that of fine-tuning
# Template   ERNIE 4.5's; ARGS="--chat_template NAME" selects another
# Weights    `make download MODEL=baidu/ERNIE-4.5-0.3B-PT`, then start with MODEL=models/ERNIE-4.5-0.3B-PT
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=16

run recipes/methods/preferences.sh \
    --model_name_or_path baidu/ernie-4.5-0.3b \
    --chat_template ernie4_5 \
    --output_dir ./checkpoints/ernie4.5-0.3b-dpo \
    --loss_type sigmoid \
    --beta 0.1 \
    --reference precomputed \
    --recompute 1 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 32 \
    --learning_rate 5e-7 \
    --min_learning_rate 5e-8 \
    "$@"
