#!/usr/bin/env bash
# LLaMA-7B LoRA fine-tuning on one card.
# Target     lora-1gpu
# Alias      lora-llama7b
# Hardware   1 card of 40 GB (A100, A800, H100, RTX 6000 Ada)
# Batch      1 data rank x 8 rows x 2 accumulation = 16 a step
# Trains     20.0 M of 6.74 B parameters: r (inputs + outputs) for each of the 7 x 32 linear layers
# Saves      only the adapter, 80 MB
# Packing    a row of 288 tokens holds as many samples as fit, and none sees another; so the shorter they are, the fewer
#            steps an epoch has. `--zero_padding 0` makes each sample a row
# Licence    of the weights: LLaMA License Agreement, non-commercial research only; Meta grants it on application.
#            facebook/llama-7b is a copy on PaddleNLP's hub, under the same terms
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=40

run recipes/methods/short-pairs.sh \
    --model_name_or_path facebook/llama-7b \
    --zero_padding 1 \
    --output_dir ./checkpoints/llama-7b-lora \
    --lora 1 \
    --lora_rank 8 \
    --lora_alpha 16 \
    --per_device_train_batch_size 8 \
    --gradient_accumulation_steps 2 \
    --scale_loss 1024 \
    --recompute 0 \
    --learning_rate 3e-4 \
    --num_train_epochs 2 \
    "$@"
