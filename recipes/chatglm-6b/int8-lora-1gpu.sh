#!/usr/bin/env bash
# ChatGLM-6B LoRA fine-tuning on one card, with a base in 8 bits.
# Target     lora-chatglm6b-int8
# Alias      chatglm6b-int8-lora-1gpu
# Hardware   1 card of 24 GB (RTX 3090, 4090, A10); FIT makes the micro batch smaller on 16 GB (V100, T4, RTX 4080)
# Base       LLM.int8: 8 bits a weight in the linear layers, inputs rounded to 8 bits. Columns with outliers (6.0 and
#            more) are computed separately in 16 bits. Weights are read one by one
# Batch      1 data rank x 32 samples x 4 accumulation = 128 a step
# Trains     14.7 M of 6.17 B parameters: r (inputs + outputs) for each of the 4 x 28 linear layers
# Saves      only the adapter, 59 MB; checkpoints contain it and its optimizer states, not the base
# Data       ./data/train.json, ./data/dev.json: {"src": ..., "tgt": ...} or another schema of docs/finetune.md
# Lengths    128 tokens for the question, 160 for the answer, 288 together; padded to a multiple of 8
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why.
#            Norms and output layer in float32
# Licence    of the weights: The ChatGLM-6B License, no military use; free for research, and commercially after
#            registration with Zhipu AI. THUDM/chatglm-6b is a copy on PaddleNLP's hub, under the same terms
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=1 GPU_MEMORY_GB=24

run launch/finetune_generation.py \
    --model_name_or_path THUDM/chatglm-6b \
    --dataset_name_or_path ./data \
    --src_length 128 \
    --max_length 288 \
    --pad_to_multiple_of 8 \
    --output_dir ./checkpoints/chatglm-6b-int8-lora \
    --lora 1 \
    --lora_rank 8 \
    --lora_alpha 8 \
    --lora_dropout 0.05 \
    --weight_quantize_algo llm.int8 \
    --per_device_train_batch_size 32 \
    --per_device_eval_batch_size 8 \
    --gradient_accumulation_steps 4 \
    --precision auto \
    --fp16_opt_level O2 \
    --fp32_norms_and_head 1 \
    --use_flash_attention auto \
    --recompute 1 \
    --learning_rate 3e-4 \
    --lr_scheduler_type linear \
    --warmup_steps 20 \
    --max_grad_norm 1.0 \
    --num_train_epochs 10 \
    --save_steps 200 \
    --eval_steps 200 \
    --evaluation_strategy steps \
    --logging_steps 10 \
    --dataloader_num_workers 1 \
    --do_train 1 \
    --do_eval 1 \
    --disable_tqdm 1 \
    --report_to visualdl \
    --device gpu \
    "$@"
