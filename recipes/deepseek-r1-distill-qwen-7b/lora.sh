#!/usr/bin/env bash
# DeepSeek-R1-Distill-Qwen-7B LoRA fine-tuning on one card.
# Target     lora-deepseek-r1-distill-qwen-7b
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10); on 40 and 80 GB FIT computes less again and is faster
# Batch      1 data rank x 1 row x 16 accumulation = 16 a step
# Trains     40.4 M of 7.62 B parameters: r (inputs + outputs) for each of the 7 x 28 linear layers
# Saves      only the adapter, 161 MB; use it with make merge, make predict or make serve
# Template   the tokenizer's own, for chats; it drops the reasoning of earlier answers, which are then read and not
#            learnt. Pairs are learnt as they are
# Weights    `make download MODEL=deepseek-ai/DeepSeek-R1-Distill-Qwen-7B`, then start with
#            MODEL=models/DeepSeek-R1-Distill-Qwen-7B
# Licence    of the weights: MIT, made from Qwen2.5-Math-7B, which is Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/lora.sh \
    --model_name_or_path deepseek-ai/deepseek-r1-distill-qwen-7b \
    --output_dir ./checkpoints/deepseek-r1-distill-qwen-7b-lora \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    "$@"
