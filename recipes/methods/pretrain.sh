# Continued pretraining on text: all parameters, sharding stage 2.
#
# The recipes of a model run this with its name and its batch; what they state wins over what is here.
# Data       ./data/*.bin + *.idx: token ids of the model's own tokenizer, made by make data-tokenize
# Rate       1e-5, falling to 1e-6: a tenth or less of what such a model was pretrained with, so that it keeps what it
#            knows. A blend of your text with general text (docs/data.md) helps more than a lower rate
# Precision  bf16 on A100, 3090 and newer, fp16 on older cards; --precision auto prints its choice and why
run launch/run_pretrain.py \
    --continue_training 1 \
    --input_dir ./data \
    --split 949,50,1 \
    --max_seq_length 4096 \
    --sharding stage2 \
    --per_device_eval_batch_size 1 \
    --precision auto --scale_loss 1024 \
    --fp16_opt_level O2 \
    --use_flash_attention auto \
    --use_fused_rms_norm auto \
    --recompute 0 \
    --learning_rate 1e-5 \
    --min_learning_rate 1e-6 \
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
