"""What a resumed run does where a flag differs from the run so far. Every flag is in one of the three sets."""

_NAMES = {
    # Refused unless --resume_changed accepts it: the identities of model, reference, teacher, data and
    # batch are compared, which these flags make (launch/checkpoint/model_identity.py, data_ledger.py).
    "refused": """
        model_name_or_path continue_training reference teacher
        lora lora_rank lora_alpha lora_plus_scale rslora pissa dora lora_target_modules trainable_token_indices
        prefix_tuning num_prefix_tokens
        weight_quantize_algo weight_blocksize weight_double_quant weight_double_quant_block_size quantize_head
        input_dir split max_seq_length dataset_name_or_path prompt_column response_column answer_column chat_template
        src_length
        max_length trained_answers zero_padding max_broken_rows tokenizer_name_or_path seed
        per_device_train_batch_size gradient_accumulation_steps
    """,
    # Changes what is trained or measured, and is printed.
    "reported": """
        max_steps num_train_epochs learning_rate min_learning_rate lr_scheduler_type lr_end num_cycles power
        warmup_steps warmup_ratio decay_steps weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm optim
        update_in_backward
        lora_dropout neftune neftune_noise_alpha skip_data_intervals ignore_data_skip
        dataloader_drop_last release_grads
        loss_type beta label_smoothing simpo_gamma desirable_weight undesirable_weight pref_loss_ratio sft_loss_ratio
        reference_free algorithm group_size rollout_steps rollout_passes temperature top_k top_p clip_low clip_high
        mask_truncated redraw_rounds kl_weight reward reward_seconds reward_gigabytes
        bf16 fp16 fp16_opt_level amp_master_grad amp_custom_black_list amp_custom_white_list fp32_norms_and_head
        scale_loss loss_scale_window loss_scale_hysteresis min_loss_scale
        bf16_full_eval fp16_full_eval max_eval_samples max_evaluate_steps metric_for_best_model greater_is_better
        load_best_model_at_end eval_with_do_generation label_names prediction_loss_only
    """,
    # Changes no result beyond rounding: where and how a run computes, what it prints, when it saves and evaluates, what
    # stops it. precision is stored as the bf16 and fp16 that it means.
    "free": """
        auto_parallel_resume_form_hybrid_parallel ckpt_quant_stage context_parallel_degree count_trained_tokens
        cpu_fast data_cache data_parallel_config dataloader_num_workers ddp_find_unused_parameters deterministic
        device disable_tqdm distributed_dataloader do_eval do_export do_predict do_train enable_auto_parallel
        eval_accumulation_steps eval_steps evaluation_strategy expert_max_capacity expert_min_capacity
        expert_parallel_degree expert_tensor_parallel_degree flatten_param_grads force force_reshard_pp
        fuse_sequence_parallel_allreduce hang_factor hang_seconds hybrid_parallel_topo_order
        ignore_load_lr_and_optim ignore_save_lr_and_optim lazy_data_processing load_sharded_model local_rank
        log_on_each_node logging_dir logging_first_step logging_steps logging_strategy loss_chunk_tokens
        loss_collapse loss_first loss_spike loss_watch max_run_minutes metrics_output_path minimum_eval_times
        no_cuda offload offload_embedding offload_optim ordered_save_group_size output_dir output_signal_dir
        overwrite_output_dir
        max_log_ratio pad_to_multiple_of pad_token_id past_index pdc_download_ckpt pdc_download_timeout
        per_device_eval_batch_size pipeline_parallel_config pipeline_parallel_degree precision recompute
        recompute_granularity refined_recompute remove_unused_columns report_to resume_changed
        resume_from_checkpoint reward_sandbox run_name sample_steps sampled_at_once save_on_each_node save_sharded_model
        save_sharding_stage1_model_include_freeze_params save_steps save_strategy save_total_limit
        sep_parallel_degree sequence_parallel sequence_parallel_config sequence_slices sharding
        sharding_comm_buffer_size_MB
        sharding_degree sharding_parallel_config sharding_parallel_degree sharding_parallel_mesh_dimension
        skip_memory_metrics skip_profile_timer split_inputs_sequence_dim tensor_parallel_config
        tensor_parallel_degree tensor_parallel_overlap to_static unified_checkpoint unified_checkpoint_config
        use_async_save use_expert_parallel use_flash_attention use_fused_rms_norm use_fused_rope wandb_api_key
        wandb_http_proxy
    """,
}
REFUSED, REPORTED, FREE = (frozenset(names.split()) for names in _NAMES.values())
