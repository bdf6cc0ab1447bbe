#!/usr/bin/env bash
# LLaMA-7B prefix tuning on one card.
# Alias      prefix-1gpu
# Hardware   1 card of 40 GB (A100, A800, H100, RTX 6000 Ada)
# Batch      1 data rank x 8 samples x 2 accumulation = 16 a step
# Trains     16.8 M of 6.74 B parameters: 64 keys and values for each of 32 layers x 32 heads x 128 elements
# Saves      only the prefix, 67 MB
# Rate       3e-2: AdamW changes each element by about the learning rate a step. A prefix starts near 0 (0.003) and
#            must reach the size of the model's own keys and values (about 1). The rate 3e-5, also found in examples,
#            is for full fine-tuning: in 1,000 steps it changes a prefix by at most 0.03
# Licence    of the weights: LLaMA License Agreement, non-commercial research only; Meta grants it on application.
#            facebook/llama-7b is a copy on PaddleNLP's hub, under the same terms
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=40

run recipes/methods/short-pairs.sh \
    --model_name_or_path facebook/llama-7b \
    --output_dir ./checkpoints/llama-7b-prefix \
    --prefix_tuning 1 \
    --num_prefix_tokens 64 \
    --per_device_train_batch_size 8 \
    --gradient_accumulation_steps 2 \
    --scale_loss 1024 \
    --recompute 0 \
    --learning_rate 3e-2 \
    --num_train_epochs 2 \
    "$@"
