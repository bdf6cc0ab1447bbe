#!/usr/bin/env bash
# LLaMA-7B fine-tuning in a pipeline, all parameters, tensor parallel 2 x pipeline parallel 2.
# Target     finetune-llama7b-pipeline
# Alias      pipeline-llama7b
# Hardware   4 cards of 40 GB with bf16 (A100, A800, H100): 6.74 B parameters x 16 bytes / 4 = 27 GB each, no recompute
# Batch      1 data rank x 4 samples x 32 accumulation = 128 a step; 32 micro batches keep 2 stages busy 97 % of the
#            time. With 16 a step it has 77 % of this speed by the plan: ARGS="--gradient_accumulation_steps 4
#            --per_device_eval_batch_size 16"
# Evaluates  on batches of 128, because a pipeline needs micro batch x accumulation; without generation
# Lengths    128 tokens for the question, 160 for the answer, 288 together. Batches differ in length, so stages send
#            each shape to each other (disable_p2p_cache_shape)
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why.
#            With fp16, all stages must agree on one loss scale and skip the same steps after an overflow
# Licence    of the weights: LLaMA License Agreement, non-commercial research only; Meta grants it on application.
#            facebook/llama-7b is a copy on PaddleNLP's hub, under the same terms
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=4 GPU_MEMORY_GB=40

run recipes/methods/short-pairs.sh \
    --model_name_or_path facebook/llama-7b \
    --output_dir ./checkpoints/llama-7b-pipeline \
    --tensor_parallel_degree 2 \
    --pipeline_parallel_degree 2 \
    --pipeline_parallel_config disable_p2p_cache_shape \
    --per_device_train_batch_size 4 \
    --per_device_eval_batch_size 128 \
    --gradient_accumulation_steps 32 \
    --learning_rate 3e-5 \
    --num_train_epochs 1 \
    --save_steps 500 \
    --eval_steps 100 \
    --eval_with_do_generation 0 \
    --logging_steps 1 \
    "$@"
