#!/usr/bin/env bash
# ERNIE-4.5-0.3B LoRA fine-tuning on one card.
# Target     lora-ernie4.5-0.3b
# Hardware   1 card of 16 GB (V100); newer ones of this size (RTX 4060 Ti, 4080) have bf16 and flash attention and are
#            faster
# Batch      1 data rank x 1 row x 16 accumulation = 16 a step
# Trains     6.0 M of 361 M parameters: r (inputs + outputs) for each of the 7 x 18 linear layers
# Saves      only the adapter, 24 MB; use it with make merge, make predict or make serve
# Template   ERNIE 4.5's; ARGS="--chat_template NAME" selects another
# Weights    `make download MODEL=baidu/ERNIE-4.5-0.3B-PT`, then start with MODEL=models/ERNIE-4.5-0.3B-PT
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=16

run recipes/methods/lora.sh \
    --model_name_or_path baidu/ernie-4.5-0.3b \
    --chat_template ernie4_5 \
    --output_dir ./checkpoints/ernie4.5-0.3b-lora \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    "$@"
