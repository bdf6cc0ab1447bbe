#!/usr/bin/env bash
# Qwen2.5-7B preference tuning (DPO) by LoRA on one card, with a base in 4 bits.
# Target     dpo-lora-qwen2.5-7b
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10); on 40 and 80 GB FIT computes less again and is faster
# Base       nf4, with one scale of 8 bits for 64 weights: 4.13 bits a weight in the linear layers. It is the reference,
#            too: with the adapter switched off, so that there is no second copy
# Batch      1 data rank x 4 samples of 2 rows x 4 accumulation = 16 a step
# Loss       sigmoid, beta 0.1; ARGS="--loss_type ipo", hinge, simpo, or (docs/align.md)
# Rate       5e-6, as is usual for DPO by LoRA: a fortieth of that of fine-tuning
# Trains     40.4 M of 7.62 B parameters: r (inputs + outputs) for each of the 7 x 28 linear layers
# Saves      only the adapter, 161 MB; use it with make merge, make predict or make serve
# Template   Qwen2's ChatML; ARGS="--chat_template NAME" selects another
# Weights    `make download MODEL=Qwen/Qwen2.5-7B-Instruct`, then start with MODEL=models/Qwen2.5-7B-Instruct
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/preferences.sh \
    --model_name_or_path Qwen/qwen2.5-7b \
    --chat_template qwen2 \
    --output_dir ./checkpoints/qwen2.5-7b-dpo-lora \
    --loss_type sigmoid \
    --beta 0.1 \
    --lora 1 \
    --lora_rank 16 \
    --lora_alpha 32 \
    --weight_quantize_algo nf4 \
    --weight_double_quant 1 \
    --recompute 1 \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 4 \
    --learning_rate 5e-6 \
    --min_learning_rate 5e-7 \
    "$@"
