#!/usr/bin/env bash
# Qwen3-8B preference tuning (SimPO) by LoRA on one card, with a base in 4 bits.
# Target     simpo-lora-qwen3-8b
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10); on 40 and 80 GB FIT computes less again and is faster
# Base       nf4, with one scale of 8 bits for 64 weights: 4.13 bits a weight in the linear layers. Weights are read one
#            by one, so the 16.4 GB of the model in 16 bits are never in memory
# Batch      1 data rank x 4 samples of 2 rows x 4 accumulation = 16 a step
# Loss       simpo, beta 2.5 with a margin of 1.4, as its paper has for Llama-3-8B-Instruct. It compares the policy with
#            no reference: one pass less than DPO, but nothing keeps the model near its start, so look at logps_chosen
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
    --output_dir ./checkpoints/qwen3-8b-simpo-lora \
    --loss_type simpo \
    --beta 2.5 \
    --simpo_gamma 1.4 \
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
