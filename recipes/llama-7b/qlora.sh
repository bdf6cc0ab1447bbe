#!/usr/bin/env bash
# LLaMA-7B LoRA fine-tuning on one card, with a base in 4 bits.
# Alias      qlora-1gpu
# Hardware   1 card of 24 GB (A10, RTX 3090, RTX 4090): 3.9 GB of weights in 4 bits. They are read one by one, so
#            the 13.5 GB in 16 bits are never in memory
# Base       nf4, with one scale of 8 bits for 64 weights: 4.13 bits a weight in the linear layers. For less rounding,
#            ARGS="--weight_quantize_algo weight_only_int8" uses 8 bits
# Batch      1 data rank x 16 rows x 1 accumulation = 16 a step
# Trains     20.0 M of 6.74 B parameters: r (inputs + outputs) for each of the 7 x 32 linear layers
# Saves      only the adapter, 80 MB
# Packing    a row of 288 tokens holds as many samples as fit, and none sees another; so the shorter they are, the fewer
#            steps an epoch has. `--zero_padding 0` makes each sample a row
# Licence    of the weights: LLaMA License Agreement, non-commercial research only; Meta grants it on application.
#            facebook/llama-7b is a copy on PaddleNLP's hub, under the same terms
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run recipes/methods/short-pairs.sh \
    --model_name_or_path facebook/llama-7b \
    --zero_padding 1 \
    --output_dir ./checkpoints/llama-7b-qlora \
    --lora 1 \
    --lora_rank 8 \
    --lora_alpha 16 \
    --weight_quantize_algo nf4 \
    --weight_double_quant 1 \
    --per_device_train_batch_size 16 \
    --gradient_accumulation_steps 1 \
    --scale_loss 1024 \
    --recompute 1 --recompute_granularity full_attn \
    --learning_rate 3e-4 \
    --num_train_epochs 2 \
    "$@"
