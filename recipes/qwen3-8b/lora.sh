#!/usr/bin/env bash
# Qwen3-8B LoRA fine-tuning on one card.
# Target     lora-qwen3-8b
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10); on 40 and 80 GB FIT computes less again and is faster
# Room       little is left on 24 GB: where a screen uses the card, too, take make qlora-qwen3-8b, or shorter
#            dialogues by ARGS="--src_length 2048 --max_length 3072"
# Batch      1 data rank x 1 row x 16 accumulation = 16 a step
# Trains     43.6 M of 8.19 B parameters: r (inputs + outputs) for each of the 7 x 36 linear layers
# Saves      only the adapter, 175 MB; use it with make merge, make predict or make serve
# Template   Qwen3's, for answers without reasoning; for data whose answers begin with <think>, ARGS="--chat_template
#            qwen3_thinking" (docs/families.md)
# Weights    `make download MODEL=Qwen/Qwen3-8B`, then start with MODEL=models/Qwen3-8B
# Licence    of the weights: Apache 2.0
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/lora.sh \
    --model_name_or_path Qwen/qwen3-8b \
    --chat_template qwen3 \
    --output_dir ./checkpoints/qwen3-8b-lora \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    "$@"
