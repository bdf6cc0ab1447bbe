#!/usr/bin/env bash
# Llama-3-8B supervised fine-tuning, all parameters, sharding stage 2.
# Target     finetune-llama3-8b
# Hardware   8 cards of 80 GB (A100, A800, H100)
# Batch      8 data ranks x 1 row x 8 accumulation = 64 a step
# Template   Llama 3's; select another with ARGS="--chat_template NAME"
# Weights    `make download MODEL=meta-llama/Meta-Llama-3-8B-Instruct`, then start with
#            MODEL=models/Meta-Llama-3-8B-Instruct; those of the Instruct model know the marks of the chat template,
#            those of the base model do not
# Licence    of the weights: Meta Llama 3 Community License; Meta asks for consent to it on the model's page, and
#            services with more than 700 million users a month need a licence of their own
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=8 GPU_MEMORY_GB=80

run recipes/methods/finetune.sh \
    --model_name_or_path meta-llama/llama-3-8b \
    --chat_template llama3 \
    --output_dir ./checkpoints/llama3-8b-finetune \
    --sharding stage2 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 8 \
    "$@"
