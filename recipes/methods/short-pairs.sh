# Fine-tuning on short questions and answers, with the lengths and the schedule of PaddleNLP 2.6's scripts.
#
# The recipes of a model run this with its name, what they train, layout and batch; what they state wins over what is
# here. Today's chats are longer: recipes/methods/lora.sh and finetune.sh.
# Data       ./data/train.json, ./data/dev.json: {"src": ..., "tgt": ...} or another schema of docs/finetune.md
# Lengths    128 tokens for the question, 160 for the answer, 288 together
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why
run launch/finetune_generation.py \
    --dataset_name_or_path ./data \
    --src_length 128 \
    --max_length 288 \
    --per_device_eval_batch_size 4 \
    --precision auto \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --use_fused_rms_norm auto \
    --lr_scheduler_type linear \
    --warmup_steps 20 \
    --max_grad_norm 1.0 \
    --save_steps 400 \
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
