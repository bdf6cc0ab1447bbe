#!/usr/bin/env bash
# Qwen3-4B reinforcement (GRPO) by LoRA on one card, with a base in 4 bits and rewards that can be checked.
# Target     grpo-qlora-qwen3-4b
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10)
# Base       nf4, with one scale of 8 bits for 64 weights: 4.13 bits a weight in the linear layers
# Batch      1 data rank x 1 prompt of 8 answers x 16 accumulation = 16 prompts, 128 answers a step
# Lengths    512 tokens for the prompt, 512 for an answer
# Trains     33.0 M of 4.02 B parameters: r (inputs + outputs) for each of the 7 x 36 linear layers
# Saves      only the adapter, 132 MB; use it with make merge, make predict or make serve
# Template   Qwen3's, for answers without reasoning; for answers that begin with <think>, ARGS="--chat_template
#            qwen3_thinking --max_length 4096" (docs/families.md)
# Weights    `make download MODEL=Qwen/Qwen3-4B`, then start with MODEL=models/Qwen3-4B
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/reinforcement.sh \
    --model_name_or_path Qwen/qwen3-4b \
    --chat_template qwen3 \
    --output_dir ./checkpoints/qwen3-4b-grpo-qlora \
    --lora 1 \
    --lora_rank 16 \
    --lora_alpha 32 \
    --weight_quantize_algo nf4 \
    --weight_double_quant 1 \
    --src_length 512 \
    --max_length 1024 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    --recompute 1 \
    --learning_rate 2e-5 \
    "$@"
