#!/usr/bin/env bash
# ChatGLM2-6B fine-tuning, all parameters, sharding stage 2 with offload.
# Target     finetune-chatglm2-6b-2gpu
# Alias      chatglm2-6b-full-2gpu
# Hardware   2 cards of 32 GB (V100-32G) and 128 GB of host memory
# Batch      2 data ranks x 4 samples x 1 accumulation = 8 a step
# Offload    moments, fp32 master weights and reduced gradients are in host memory
# Buckets    DeepSpeed's 5e8 has no flag here: Paddle reduces tensors above 2^23 elements one by one,
#            smaller ones together
# Data       ./data/train.json, ./data/dev.json: AdvertiseGen, {"content": ..., "summary": ...}, or another schema of
#            docs/finetune.md
# Lengths    64 tokens for the question, 64 for the answer, 128 together
# Answers    generated for the dev set after the last step, one sample at a time; BLEU and ROUGE in run_summary.json
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why.
#            fp16 has a dynamic loss scale: it starts at 2^16, doubles after 1,000 steps without an overflow, and
#            halves from the second overflow on, down to 1
# Licence    of the weights: The ChatGLM2-6B License, no military use; free for research, and commercially after
#            registration with Zhipu AI. THUDM/chatglm2-6b is a copy on PaddleNLP's hub, under the same terms
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=2 GPU_MEMORY_GB=32

run launch/finetune_generation.py \
    --model_name_or_path THUDM/chatglm2-6b \
    --dataset_name_or_path ./data \
    --src_length 64 \
    --max_length 128 \
    --output_dir ./checkpoints/chatglm2-6b-full \
    --sharding "stage2 offload" \
    --per_device_train_batch_size 4 \
    --per_device_eval_batch_size 1 \
    --gradient_accumulation_steps 1 \
    --precision auto --scale_loss 65536 \
    --loss_scale_window 1000 --loss_scale_hysteresis 2 --min_loss_scale 1 \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --recompute 0 \
    --learning_rate 1e-4 \
    --lr_scheduler_type linear \
    --max_grad_norm 1.0 \
    --max_steps 5000 \
    --save_steps 1000 \
    --save_total_limit 1 \
    --eval_steps 5000 \
    --evaluation_strategy steps \
    --eval_with_do_generation 1 \
    --logging_steps 10 \
    --dataloader_num_workers 1 \
    --do_train 1 \
    --do_eval 1 \
    --disable_tqdm 1 \
    --report_to visualdl \
    --device gpu \
    "$@"
