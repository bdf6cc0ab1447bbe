#!/usr/bin/env bash
# Llama-3-8B supervised fine-tuning, all parameters, on one card.
# Target     finetune-llama3-8b-1gpu
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10), 32 GB of host memory
# Batch      1 data rank x 4 rows of 2,048 tokens; each parameter is updated within the backward pass
# Optimizer  AdamW with moments in 8 bits in host memory; the weights in bfloat16, rounded up or down by chance
# Template   Llama 3's; select another with ARGS="--chat_template NAME"
# Weights    `make download MODEL=meta-llama/Meta-Llama-3-8B-Instruct`, then start with
#            MODEL=models/Meta-Llama-3-8B-Instruct; those of the Instruct model know the marks of the chat template,
#            those of the base model do not
# Licence    of the weights: Meta Llama 3 Community License; Meta asks for consent to it on the model's page, and
#            services with more than 700 million users a month need a licence of their own
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/finetune-1gpu.sh \
    --model_name_or_path meta-llama/llama-3-8b \
    --chat_template llama3 \
    --output_dir ./checkpoints/llama3-8b-finetune-1gpu \
    "$@"
