#!/usr/bin/env bash
# Qwen3-8B continued pretraining, sharding stage 2.
# Target     pretrain-qwen3-8b
# Hardware   8 cards of 80 GB (A100, A800, H100)
# Tokens     8 cards x 1 sample x 16 accumulation x 4096 = 524,288 a step, 524 M in 1,000 steps
# Expect     first loss 12.8 from random weights (--continue_training 0); when continuing, that of the model on your
#            text
# Weights    `make download MODEL=Qwen/Qwen3-8B-Base`, then start with MODEL=models/Qwen3-8B-Base
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=8 GPU_MEMORY_GB=80

run recipes/methods/pretrain.sh \
    --model_name_or_path Qwen/qwen3-8b \
    --output_dir ./checkpoints/qwen3-8b-pretrain \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    "$@"
