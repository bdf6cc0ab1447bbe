#!/usr/bin/env bash
# ERNIE-4.5-0.3B continued pretraining, sharding stage 2.
# Target     pretrain-ernie4.5-0.3b
# Hardware   8 cards of 16 GB (V100)
# Tokens     8 cards x 1 sample x 16 accumulation x 4096 = 524,288 a step, 524 M in 1,000 steps
# Expect     first loss 11.8 from random weights (--continue_training 0); when continuing, that of the model on your
#            text
# Weights    `make download MODEL=baidu/ERNIE-4.5-0.3B-Base-PT`, then start with MODEL=models/ERNIE-4.5-0.3B-Base-PT
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=8 GPU_MEMORY_GB=16

run recipes/methods/pretrain.sh \
    --model_name_or_path baidu/ernie-4.5-0.3b \
    --output_dir ./checkpoints/ernie4.5-0.3b-pretrain \
    --recompute 1 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    "$@"
