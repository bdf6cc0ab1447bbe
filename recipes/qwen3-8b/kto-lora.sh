#!/usr/bin/env bash
# Qwen3-8B preference tuning (KTO) by LoRA on one card, with a base in 4 bits.
# Target     kto-lora-qwen3-8b
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10); on 40 and 80 GB FIT computes less again and is faster
# Base       nf4, with one scale of 8 bits for 64 weights: 4.13 bits a weight in the linear layers. It is the reference,
#            too: with the adapter switched off, so that there is no second copy
# Data       ./data/train.json, ./data/dev.json: {"prompt": ..., "completion": ..., "label": true} and more forms; a pair
#            becomes two responses (docs/align.md)
# Packing    none: a row is a response behind its prompt
# Batch      1 data rank x 8 rows x 4 accumulation = 32 a step, all of which have one z0
# Loss       kto, beta 0.1; where desired or undesired responses are rarer, --desirable_weight or --undesirable_weight
#            makes up for it (docs/align.md)
# Rate       5e-6
# Trains     43.6 M of 8.19 B parameters: r (inputs + outputs) for each of the 7 x 36 linear layers
# Saves      only the adapter, 175 MB; use it with make merge, make predict or make serve
# Template   Qwen3's, for answers without reasoning; for data whose answers begin with <think>, ARGS="--chat_template
#            qwen3_thinking" (docs/families.md)
# Weights    `make download MODEL=Qwen/Qwen3-8B`, then start with MODEL=models/Qwen3-8B
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/preferences.sh \
    --model_name_or_path Qwen/qwen3-8b \
    --chat_template qwen3 \
    --output_dir ./checkpoints/qwen3-8b-kto-lora \
    --zero_padding 0 \
    --loss_type kto \
    --beta 0.1 \
    --desirable_weight 1.0 \
    --undesirable_weight 1.0 \
    --lora 1 \
    --lora_rank 16 \
    --lora_alpha 32 \
    --weight_quantize_algo nf4 \
    --weight_double_quant 1 \
    --recompute 1 \
    --per_device_train_batch_size 8 \
    --gradient_accumulation_steps 4 \
    --learning_rate 5e-6 \
    --min_learning_rate 5e-7 \
    "$@"
