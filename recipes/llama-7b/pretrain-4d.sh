#!/usr/bin/env bash
# LLaMA-7B continued pretraining, 4D: tensor, pipeline and sequence parallel, sharding stage 1.
# Target     pretrain-llama7b-4d
# Hardware   8 cards of 80 GB (A100, A800, H100) in one node
# Layout     tensor 2 x pipeline 2 x sharding 2: sharding uses the remaining cards, 8 / (2 x 2)
# Two nodes  tensor 4 x pipeline 2 x sharding 2 on 16 cards, with the same samples a step:
#            NNODES=2 RANK=0 MASTER=host:port ARGS="--tensor_parallel_degree 4", and RANK=1 on the other node.
#            On 8 cards this flag leaves nothing to shard, and PaddleNLP switches stage 1 off
# Tokens     2 sharding ranks x 64 micro batches x 2 samples x 2048 = 524,288 a step, 524 M in 1,000 steps
# PaddleNLP  publishes 4D for LLaMA-13B, with this micro batch and accumulation and gradients summed in float32, with
#            95 % of this speed by the plan: ARGS="--amp_master_grad 1"
# Pipeline   a card is idle for (stages - 1) / (micro batches + stages - 1) of the time:
#            1 / 65, with 4 micro batches 1 / 5
# Expect     first loss 1.99 to 2.5 when continuing; 11.2 from random weights (--continue_training 0)
# Data       ./data/*.bin + *.idx: token ids of the model's own tokenizer
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why
# Memory     a card holds a quarter of the weights: 1.7 G x (2 weights + 2 gradients + 12 / 2 sharded optimizer
#            states) bytes = 17 GB before activations, so nothing is recomputed. Smaller cards: --recompute 1
# Licence    of the weights: LLaMA License Agreement, non-commercial research only; Meta grants it on application.
#            facebook/llama-7b is a copy on PaddleNLP's hub, under the same terms
source "$(dirname "$0")/../../launch/recipe.sh"
GPUS=8 GPU_MEMORY_GB=80

# A pipeline evaluates in the micro batches of training, so its evaluation batch is 2 x 64. Under sequence parallel,
# tensor parallel ranks have different positions, so each sends its whole tensor (disable_partial_send_recv).
run launch/run_pretrain.py \
    --model_name_or_path facebook/llama-7b \
    --continue_training 1 \
    --loss_first 1.8-2.5 \
    --input_dir ./data \
    --split 949,50,1 \
    --max_seq_length 2048 \
    --output_dir ./checkpoints/llama-7b-pretrain-4d \
    --tensor_parallel_degree 2 \
    --sequence_parallel 1 \
    --pipeline_parallel_degree 2 \
    --pipeline_parallel_config disable_partial_send_recv \
    --sharding stage1 \
    --per_device_train_batch_size 2 \
    --per_device_eval_batch_size 128 \
    --gradient_accumulation_steps 64 \
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
