#!/usr/bin/env bash
# ERNIE-4.5-21B-A3B LoRA fine-tuning on one card, with a base in 4 bits.
# Target     qlora-ernie4.5-21b-a3b
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10); on 40 and 80 GB FIT computes less again and is faster
# Base       nf4, with one scale of 8 bits for 64 weights: 4.13 bits a weight in the linear layers, those of all experts
#            too. Weights are read one by one, so the 43.7 GB of the model in 16 bits are never in memory
# Lengths    1536 tokens for the question, 2048 for a dialogue; turns that do not fit are left out and counted
# Packing    a row of 2048 tokens holds as many dialogues as fit, and none sees another; so the shorter they are, the
#            fewer steps an epoch has. `--zero_padding 0` makes each dialogue a row
# Batch      1 data rank x 8 rows x 2 accumulation = 16 a step
# Trains     7.3 M of 21.8 B parameters: r (inputs + outputs) for each of the 4 x 28 linear layers of attention; without
#            --lora_target_modules the experts are adapted, too, with 355 M
# Saves      only the adapter, 29 MB; use it with make merge, make predict or make serve
# Template   ERNIE 4.5's; ARGS="--chat_template NAME" selects another
# Weights    `make download MODEL=baidu/ERNIE-4.5-21B-A3B-PT`, then start with MODEL=models/ERNIE-4.5-21B-A3B-PT
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/lora.sh \
    --model_name_or_path baidu/ernie-4.5-21b-a3b \
    --chat_template ernie4_5 \
    --output_dir ./checkpoints/ernie4.5-21b-a3b-qlora \
    --src_length 1536 \
    --max_length 2048 \
    --weight_quantize_algo nf4 \
    --weight_double_quant 1 \
    --lora_target_modules q_proj k_proj v_proj o_proj \
    --per_device_train_batch_size 8 \
    --gradient_accumulation_steps 2 \
    "$@"
