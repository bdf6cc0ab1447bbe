#!/usr/bin/env bash
# Qwen2.5-0.5B reinforcement (GRPO) on one card, all parameters, with rewards that can be checked.
# Target     grpo-qwen2.5-0.5b
# Hardware   1 card of 16 GB (V100); newer ones of this size (RTX 4060 Ti, 4080) have bf16 and flash attention and are
#            faster
# Batch      1 data rank x 1 prompt of 8 answers x 16 accumulation = 16 prompts, 128 answers a step
# Lengths    256 tokens for the prompt, 512 for an answer
# Template   Qwen2's ChatML; ARGS="--chat_template NAME" selects another
# Weights    `make download MODEL=Qwen/Qwen2.5-0.5B-Instruct`, then start with MODEL=models/Qwen2.5-0.5B-Instruct
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=16

run recipes/methods/reinforcement.sh \
    --model_name_or_path Qwen/qwen2.5-0.5b \
    --chat_template qwen2 \
    --output_dir ./checkpoints/qwen2.5-0.5b-grpo \
    --src_length 256 \
    --max_length 768 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    --recompute 1 \
    --learning_rate 1e-6 \
    "$@"
