#!/usr/bin/env bash
# Llama-3-8B preference tuning (DPO), all parameters, sharding stage 2.
# Target     dpo-llama3-8b
# Hardware   8 cards of 80 GB (A100, A800, H100)
# Batch      8 data ranks x 1 sample of 2 rows x 4 accumulation = 32 a step
# Loss       sigmoid, beta 0.1; ARGS="--loss_type ipo", hinge, simpo, or (docs/align.md)
# Reference  computed once, before training, and kept on disk (docs/align.md); a second copy in its place
#            (ARGS="--reference copy") takes 15.0 GiB on every card
# Rate       5e-7, as is usual for DPO of all parameters: a twentieth of that of fine-tuning
# Template   Llama 3's; select another with ARGS="--chat_template NAME"
# Weights    `make download MODEL=meta-llama/Meta-Llama-3-8B-Instruct`, then start with
#            MODEL=models/Meta-Llama-3-8B-Instruct
# Licence    of the weights: Meta Llama 3 Community License; Meta asks for consent to it on the model's page, and
#            services with more than 700 million users a month need a licence of their own
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=8 GPU_MEMORY_GB=80

run recipes/methods/preferences.sh \
    --model_name_or_path meta-llama/llama-3-8b \
    --chat_template llama3 \
    --output_dir ./checkpoints/llama3-8b-dpo \
    --loss_type sigmoid \
    --beta 0.1 \
    --sharding stage2 \
    --reference precomputed \
    --recompute 0 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 4 \
    --learning_rate 5e-7 \
    --min_learning_rate 5e-8 \
    "$@"
