#!/usr/bin/env bash
# LLaMA-7B continued pretraining, sharding stage 2.
# Hardware   8 cards of 80 GB (A100, A800, H100)
# Tokens     8 cards x 4 samples x 8 accumulation x 2048 = 524,288 a step, 524 M in 1,000 steps
# PaddleNLP  2.6's published script, with half of this speed or more by the plan: ARGS="--recompute 1
#            --per_device_train_batch_size 1 --gradient_accumulation_steps 1 --max_steps 10000 --save_steps 5000
#            --eval_steps 1000 --logging_steps 20"
# Expect     first loss 1.99 to 2.5 when continuing; 11.2 from random weights (--continue_training 0)
# Data       ./data/*.bin + *.idx: token ids of the model's own tokenizer
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why
# Licence    of the weights: LLaMA License Agreement, non-commercial research only; Meta grants it on application.
#            facebook/llama-7b is a copy on PaddleNLP's hub, under the same terms
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=8 GPU_MEMORY_GB=80

run launch/run_pretrain.py \
    --model_name_or_path facebook/llama-7b \
    --continue_training 1 \
    --loss_first 1.8-2.5 \
    --input_dir ./data \
    --split 949,50,1 \
    --max_seq_length 2048 \
    --output_dir ./checkpoints/llama-7b-pretrain \
    --sharding stage2 \
    --per_device_train_batch_size 4 \
    --per_device_eval_batch_size 4 \
    --gradient_accumulation_steps 8 \
    --precision auto --scale_loss 1024 \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --use_fused_rms_norm auto \
    --recompute 0 \
    --learning_rate 1e-5 \
    --min_learning_rate 5e-6 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.01 \
    --weight_decay 0.01 \
    --max_grad_norm 1.0 \
    --max_steps 1000 \
    --save_steps 200 \
    --save_total_limit 1 \
    --eval_steps 100 \
    --evaluation_strategy steps \
    --logging_steps 5 \
    --dataloader_num_workers 1 \
    --do_train 1 \
    --do_eval 1 \
    --disable_tqdm 1 \
    --report_to visualdl \
    --device gpu \
    "$@"
