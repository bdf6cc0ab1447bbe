#!/usr/bin/env bash
# Llama-3-8B LoRA fine-tuning on one card, with a base in 4 bits.
# Target     qlora-llama3-8b
# Hardware   1 card of 24 GB (RTX 3090, RTX 4090, A10); on 40 and 80 GB FIT computes less again and is faster
# Base       nf4, with one scale of 8 bits for 64 weights: 4.13 bits a weight in the linear layers. Weights are read one
#            by one, so the 16.1 GB of the model in 16 bits are never in memory
# Batch      1 data rank x 4 rows x 4 accumulation = 16 a step
# Trains     41.9 M of 8.03 B parameters: r (inputs + outputs) for each of the 7 x 32 linear layers
# Saves      only the adapter, 168 MB; use it with make merge, make predict or make serve
# Template   Llama 3's; select another with ARGS="--chat_template NAME"
# Weights    `make download MODEL=meta-llama/Meta-Llama-3-8B-Instruct`, then start with
#            MODEL=models/Meta-Llama-3-8B-Instruct; those of the Instruct model know the marks of the chat template,
#            those of the base model do not
# Licence    of the weights: Meta Llama 3 Community License; Meta asks for consent to it on the model's page, and
#            services with more than 700 million users a month need a licence of their own
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/lora.sh \
    --model_name_or_path meta-llama/llama-3-8b \
    --chat_template llama3 \
    --output_dir ./checkpoints/llama3-8b-qlora \
    --weight_quantize_algo nf4 \
    --weight_double_quant 1 \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 4 \
    "$@"
