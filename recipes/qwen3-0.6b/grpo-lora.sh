#!/usr/bin/env bash
# Qwen3-0.6B reinforcement (GRPO) by LoRA on one card, with rewards that can be checked.
# Target     grpo-lora-qwen3-0.6b
# Hardware   1 card of 16 GB (V100); newer ones of this size (RTX 4060 Ti, 4080) have bf16 and flash attention and are
#            faster
# Batch      1 data rank x 1 prompt of 8 answers x 16 accumulation = 16 prompts, 128 answers a step
# Lengths    512 tokens for the prompt, 512 for an answer
# Trains     10.1 M of 596 M parameters: r (inputs + outputs) for each of the 7 x 28 linear layers
# Saves      only the adapter, 40 MB; use it with make merge, make predict or make serve
# Template   Qwen3's, for answers without reasoning; for answers that begin with <think>, ARGS="--chat_template
#            qwen3_thinking --max_length 4096" (docs/families.md)
# Weights    `make download MODEL=Qwen/Qwen3-0.6B`, then start with MODEL=models/Qwen3-0.6B
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=16

run recipes/methods/reinforcement.sh \
    --model_name_or_path Qwen/qwen3-0.6b \
    --chat_template qwen3 \
    --output_dir ./checkpoints/qwen3-0.6b-grpo-lora \
    --lora 1 \
    --lora_rank 16 \
    --lora_alpha 32 \
    --src_length 512 \
    --max_length 1024 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    --recompute 1 \
    --learning_rate 2e-5 \
    "$@"
