#!/usr/bin/env bash
# Qwen3-30B-A3B LoRA fine-tuning on one card, with a base in 4 bits.
# Target     qlora-qwen3-30b-a3b
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10); on 40 and 80 GB FIT computes less again and is faster
# Base       nf4, with one scale of 8 bits for 64 weights: 4.13 bits a weight in the linear layers, those of all experts
#            too. Weights are read one by one, so the 61.1 GB of the model in 16 bits are never in memory
# Lengths    1536 tokens for the question, 2048 for a dialogue; turns that do not fit are left out and counted
# Packing    a row of 2048 tokens holds as many dialogues as fit, and none sees another; so the shorter they are, the
#            fewer steps an epoch has. `--zero_padding 0` makes each dialogue a row
# Batch      1 data rank x 2 rows x 8 accumulation = 16 a step
# Trains     13.4 M of 30.5 B parameters: r (inputs + outputs) for each of the 4 x 48 linear layers of attention; without
#            --lora_target_modules the experts are adapted, too, with 844 M
# Saves      only the adapter, 53 MB; use it with make merge, make predict or make serve
# Template   Qwen3's, for answers without reasoning; for data whose answers begin with <think>, ARGS="--chat_template
#            qwen3_thinking" (docs/families.md)
# Weights    `make download MODEL=Qwen/Qwen3-30B-A3B`, then start with MODEL=models/Qwen3-30B-A3B
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/lora.sh \
    --model_name_or_path Qwen/qwen3-30b-a3b \
    --chat_template qwen3 \
    --output_dir ./checkpoints/qwen3-30b-a3b-qlora \
    --src_length 1536 \
    --max_length 2048 \
    --weight_quantize_algo nf4 \
    --weight_double_quant 1 \
    --lora_target_modules q_proj k_proj v_proj o_proj \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 8 \
    "$@"
