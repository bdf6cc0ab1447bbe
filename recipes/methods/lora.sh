# LoRA fine-tuning on dialogues, on one card: small matrices beside every linear layer, which stay as they are.
#
# The recipes of a model run this with its name, chat template and batch; what they state wins over what is here.
# Data       ./data/train.json, ./data/dev.json: {"messages": [...]}, Alpaca, ShareGPT, {"src": ..., "tgt": ...}
#            (docs/finetune.md)
# Lengths    3072 tokens for the question, 4096 for a dialogue; turns that do not fit are left out and counted
# Packing    a row of 4096 tokens holds as many dialogues as fit, and none sees another; so the shorter they are, the
#            fewer steps an epoch has. `--zero_padding 0` makes each dialogue a row
# Rate       2e-4 for rank 16 on all linear layers: a LoRA needs about ten times the rate of full fine-tuning
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why
run launch/finetune_generation.py \
    --dataset_name_or_path ./data \
    --src_length 3072 \
    --max_length 4096 \
    --zero_padding 1 \
    --lora 1 \
    --lora_rank 16 \
    --lora_alpha 32 \
    --recompute 1 \
    --per_device_eval_batch_size 1 \
    --precision auto --scale_loss 1024 \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --use_fused_rms_norm auto \
    --learning_rate 2e-4 \
    --min_learning_rate 2e-5 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.03 \
    --weight_decay 0 \
    --max_grad_norm 1.0 \
    --num_train_epochs 2 \
    --save_steps 200 \
    --save_total_limit 2 \
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
