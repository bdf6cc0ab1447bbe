"""The commands of PaddleNLP 2.6's LLaMA example, as its users have them in their scripts. Facts, not ours.

From PaddlePaddle/PaddleNLP, examples/language_model/llama: README.md of mid 2023 and its neighbour of a month earlier,
run_trainer_tp4pp2.sh at commit 22d6b5300f87b10bd5954b403d3bf56cf8d3bc96, the flags of finetune_generation.py after
pull request 6160 (2023-06-13), and the two merge scripts that llm/docs name.
"""

PRETRAIN = """
python -u -m paddle.distributed.launch --gpus "0,1,2,3,4,5,6,7" --log_dir "output/llama_hybid_log" run_pretrain.py
    --model_type "llama" --model_name_or_path "facebook/llama-7b" --tokenizer_name_or_path "facebook/llama-7b"
    --input_dir "./data" --output_dir "output/llama_hybid" --split 949,50,1 --max_seq_length 2048
    --per_device_train_batch_size 1 --per_device_eval_batch_size 1 --use_flash_attention 1 --use_fused_rms_norm 0
    --fp16 --fp16_opt_level "O2" --scale_loss 1024 --learning_rate 0.00001 --min_learning_rate 0.000005
    --lr_scheduler_type "cosine" --max_steps 10000 --save_steps 5000 --weight_decay 0.01 --warmup_ratio 0.01
    --max_grad_norm 1.0 --logging_steps 20 --dataloader_num_workers 1 --sharding "stage2" --eval_steps 1000
    --report_to "visualdl" --disable_tqdm true --continue_training 1 --recompute 1 --do_train --do_eval --device "gpu"
"""
FOUR_D = """
python -u -m paddle.distributed.launch --gpus "0,1,2,3,4,5,6,7" --log_dir "output/llama_hybid_log" run_pretrain.py
    --model_type "llama" --model_name_or_path "facebook/llama-7b" --tokenizer_name_or_path "facebook/llama-7b"
    --input_dir "./data" --output_dir "output/llama_hybid" --split 949,50,1 --max_seq_length 2048
    --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --per_device_eval_batch_size 4
    --use_flash_attention 1 --use_fused_rms_norm 0 --fp16 --fp16_opt_level "O2" --scale_loss 512
    --tensor_parallel_degree 4 --pipeline_parallel_degree 2 --virtual_pp_degree 1 --learning_rate 0.00001
    --min_learning_rate 0.000001 --max_steps 10000 --save_steps 5000 --weight_decay 0.01 --warmup_ratio 0.01
    --max_grad_norm 1.0 --logging_steps 10 --dataloader_num_workers 1 --eval_steps 1000 --report_to "visualdl"
    --sharding "stage1" --disable_tqdm true --continue_training 1 --recompute 1 --do_train --do_eval --device "gpu"
"""
FULL_TP4 = """
python -u -m paddle.distributed.fleet.launch --gpus "0,1,2,3" finetune_generation.py --output_dir ./checkpoints/
    --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --per_device_eval_batch_size 8
    --model_name_or_path facebook/llama-7b --task_name squad --num_train_epochs 2 --learning_rate 3e-5
    --warmup_steps 30 --logging_steps 1 --evaluation_strategy epoch --save_strategy epoch --src_length 1024
    --tgt_length 1024 --fp16 --fp16_opt_level O2 --do_train --do_eval --disable_tqdm True --load_best_model_at_end True
    --metric_for_best_model accuracy --eval_with_do_generation False --recompute --save_total_limit 1
    --overwrite_output_dir --tensor_parallel_degree 4
"""
PIPELINE_BEFORE = """
python -u -m paddle.distributed.launch --gpus "4,5,6,7" finetune_generation.py
    --model_name_or_path facebook/tiny-random-llama --do_train --do_eval --num_train_epochs 1
    --dataloader_num_workers 1 --gradient_accumulation_steps 1 --per_device_train_batch_size 16
    --per_device_eval_batch_size 16 --tensor_parallel_degree 2 --pipeline_parallel_degree 2
    --pipeline_parallel_mirco_batch_size 1 --pipeline_parallel_config "disable_p2p_cache_shape" --overwrite_output_dir
    --output_dir ./checkpoints/ --logging_steps 1 --disable_tqdm 1 --eval_steps 100 --eval_with_do_generation 0
    --fp16 0 --fp16_opt_level O2 --recompute --learning_rate 3e-5 --lr_scheduler_type linear --max_grad_norm 1.0
    --warmup_steps 20
"""
# Not a line of the README: the flags that finetune_generation.py had between the two of its states above.
LORA_BETWEEN = """
python finetune_generation.py --output_dir ./checkpoints/ --model_name_or_path facebook/llama-7b --task_name squad
    --tgt_length 160 --lora True --r 4 --merge_weights False --instruction_generation True --do_generation False
    --do_train --num_beams 5 --label_smoothing 0.1
"""
MERGE_RANKS = """
python -m paddle.distributed.launch --gpus 0,1,2,3 predict_generation.py
    --model_name_or_path ./checkpoints/checkpoint-100/ --merge_tensor_parallel_path ./checkpoints/llama-merged
"""
MERGE_RANKS_AND_STAGES = """
python merge_tp_and_pp_params.py --model_name_or_path ./checkpoints/llama_sft_ckpts/checkpoint-100 --pp 2 --tp 4
"""
MERGE_LORA = """
python merge_lora_params.py --model_name_or_path meta-llama/Llama-2-7b-chat --lora_path ./checkpoints/llama_lora_ckpts
"""
PREDICT = "python predict_generation.py --model_name_or_path ./checkpoints/"
PREDICT_LORA = "python predict_generation.py --model_name_or_path facebook/llama-7b --lora_path ./checkpoints"
PREDICT_PREFIX = "python predict_generation.py --model_name_or_path facebook/llama-7b --prefix_path ./checkpoints"
EXPORT = "python export_generation_model.py --model_path checkpoints/ --output_path inference/llama"
