"""The flags of all methods with their types, and below each what it is for.

`python -m launch.training.flag_schema` makes this file from the argument classes of launch/training and launch/methods.
"""

from dataclasses import dataclass

from launch.config.flag import SwitchValue, known


@dataclass(frozen=True, init=False, repr=False, eq=False)
class CommonFlags:
    """The flags that all methods have."""

    adam_beta1: float = known("float", 0.9, range={"least": 0, "below": 1})
    """Beta1 for AdamW optimizer"""
    adam_beta2: float = known("float", 0.999, range={"least": 0, "below": 1})
    """Beta2 for AdamW optimizer"""
    adam_epsilon: float = known("float", 1e-08, range={"above": 0})
    """Epsilon for AdamW optimizer."""
    amp_custom_black_list: str | None = known("str", None, many=True)
    """The set of ops that support fp16/bf16 calculation and are considered numerically-dangerous and whose effects
    may also be observed in downstream ops."""
    amp_custom_white_list: str | None = known("str", None, many=True)
    """The the set of ops that support fp16/bf16 calculation and are considered numerically-safe and
    performance-critical. These ops will be converted to fp16/bf16."""
    amp_master_grad: bool = known("bool", False)
    """amp_master_grad (bool, optional) – For amp opt level=’O2’, whether to use float32 weight gradients for
    calculations such as gradient clipping, weight decay, and weight updates. If master_grad is enabled, the weight
    gradients will be float32 dtype after the backpropagation. Default is False, there is only float16 weight
    gradients.Note: only support model parallel and pipeline parallel for now !!!"""
    auto_parallel_resume_form_hybrid_parallel: bool = known("bool", False)
    """Wether hybrid paralle checkpoints be loaded in auto parallel mode."""
    bf16: SwitchValue = known("switch", "off", alone="on")
    """Compute in bfloat16. auto: where the card has it, float16 on older cards. On a CPU products of matrices alone,
    auto: where it has AVX512-bf16 or AMX, and after make custom-ops."""
    bf16_full_eval: bool = known("bool", False)
    """Whether to use full bfloat16 evaluation instead of 32-bit. This is an experimental API and it may change."""
    ckpt_quant_stage: str = known("str", "O0", choices=("O0", "O1", "O2"))
    """checkpoint quantization stage. O0: deactivate, O1: Int8 compression, O2: Int4 compression. (default: O0)"""
    context_parallel_degree: int = known("int", -1, range={"least": -1, "most": 65536})
    """The paddle context parallel strategy. It can reduce the GPU memory of activation to 1/cp, and it is orthogonal
    to data parallel, sharding stage1, tensor parallel and pipeline parallel strategy."""
    continue_training: bool = known("bool", True)
    """Start from the model's weights (1) or from random ones (0)."""
    count_trained_tokens: bool = known("bool", False)
    """Whether to count trained tokens."""
    cpu_fast: SwitchValue = known("switch", "auto")
    """Faster settings and operators on a CPU; off: stock Paddle."""
    data_parallel_config: str = known("str", "")
    """Some additional configs which affect data parallel performance, we provide some option to config it.following
    config is support: enable_allreduce_avg_in_gradinent_scale, it replace `allreduce_sum + scale` pattern with
    `allreduce_avg` when scale gradient in data_parallel, which improve the performance. ONLY supported for auto mode
    now. gradient_sync_after_accumulate, move gradient sync operations from backward into optimizer step when gradient
    accumulate enabling, which reduce the sync times to improve performance, but will increase the memory usage. ONLY
    supported for auto mode now."""
    dataloader_drop_last: bool = known("bool", False)
    """Drop the last incomplete batch if it is not divisible by the batch size."""
    dataloader_num_workers: int = known("int", 0, range={"least": 0, "most": 1024})
    """Number of subprocesses to use for data loading. 0 means that the data will be loaded in the main process."""
    ddp_find_unused_parameters: bool | None = known("bool", None)
    """When using distributed training, the value of the flag `find_unused_parameters` passed to `DataParallel`."""
    decay_steps: int = known("int", -1, range={"least": -1, "most": 2147483647})
    """Steps until min_learning_rate is reached. Default: max_steps."""
    deterministic: bool = known("bool", False)
    """On GPUs: equal runs are equal to the bit, at some cost in speed. On a CPU they always are."""
    device: str = known("str", "gpu", choices=("cpu", "gpu"))
    """select cpu, gpu, xpu, npu devices."""
    disable_tqdm: bool | None = known("bool", None)
    """Whether or not to disable the tqdm progress bars."""
    distributed_dataloader: bool = known("bool", False)
    """Whether to use distributed dataloader."""
    do_eval: bool = known("bool", False)
    """Whether to run eval on the dev set."""
    do_export: bool = known("bool", False)
    """Whether to export infernece model."""
    do_predict: bool = known("bool", False)
    """Whether to run predictions on the test set."""
    do_train: bool = known("bool", False)
    """Whether to run training."""
    dora: bool = known("bool", False)
    """DoRA: train the lengths of the weights' columns, too, apart from what the adapters' product turns."""
    enable_auto_parallel: bool = known("bool", False)
    """whether to run distributed training in auto parallel mode"""
    eval_accumulation_steps: int | None = known("int", None, range={"least": 1, "most": 2147483647})
    """Number of predictions steps to accumulate before moving the tensors to the CPU."""
    eval_steps: int | None = known("int", None, range={"least": 0, "most": 2147483647})
    """Run an evaluation every X steps."""
    evaluation_strategy: str = known("str", "no", choices=("no", "steps", "epoch"))
    """The evaluation strategy to use."""
    expert_max_capacity: int = known("int", 4294967296, range={"least": 1})
    """Enable MoE (Mixture of Experts) expert max token capacity"""
    expert_min_capacity: int = known("int", 1, range={"least": 1})
    """Enable MoE (Mixture of Experts) expert min token capacity"""
    expert_parallel_degree: int = known("int", -1, range={"least": -1, "most": 65536})
    """The paddle expert data parallel strategy."""
    expert_tensor_parallel_degree: int = known("int", -1, range={"least": -1, "most": 65536})
    """The paddle expert tensor parallel strategy. Currently is not supported. DO NOT SET."""
    flatten_param_grads: bool = known("bool", False)
    """Whether use flatten_param_grads method in optimizer, only used on NPU devices."""
    force: bool = known("bool", False)
    """Start though the plan says that memory will not suffice."""
    force_reshard_pp: bool = known("bool", False)
    """reshard pp even if pp degree in the model and pp degree in script match"""
    fp16: bool = known("bool", False)
    """Whether to use fp16 (mixed) precision instead of 32-bit"""
    fp16_full_eval: bool = known("bool", False)
    """Whether to use full float16 evaluation instead of 32-bit"""
    fp16_opt_level: str = known("str", "O1", choices=("O0", "O1", "O2"))
    """For fp16: AMP optimization level selected in ['O0', 'O1', and 'O2']. See details at
    https://www.paddlepaddle.org.cn/documentation/docs/zh/develop/api/paddle/amp/auto_cast_cn.html"""
    fp32_norms_and_head: bool = known("bool", False)
    """Compute norms and the output layer in float32 where the rest is in half precision."""
    fuse_sequence_parallel_allreduce: bool = known("bool", False)
    """Whether to use fuse sequence parallel allreduce."""
    gradient_accumulation_steps: int = known("int", 1, range={"least": 1, "most": 1000000})
    """Number of updates steps to accumulate before performing a backward/update pass."""
    greater_is_better: bool | None = known("bool", None)
    """Whether the `metric_for_best_model` should be maximized or not."""
    hang_factor: float = known("float", 20, range={"least": 0})
    """End the run, with every rank's stack in its log, after this many median steps without one."""
    hang_seconds: float = known("float", 300, range={"above": 0})
    """The least time without a step that counts as hung; six times that at first."""
    hybrid_parallel_topo_order: str | None = known("str", None, choices=("pp_first", "sharding_first"))
    """In hybrid parallelism, the order of communication groups may affect efficiency. Following options are
    supported: - pp_first. the topo order is dp, pp, sharding, mp - sharding_first. the topo order is dp, sharding,
    pp, mp Defalut is None, for pp_first"""
    ignore_data_skip: bool = known("bool", False)
    """When resuming training, whether or not to skip the first epochs and batches to get to the same training
    data."""
    ignore_load_lr_and_optim: bool = known("bool", False)
    """whether to ignore load optimizer and scheduler."""
    ignore_save_lr_and_optim: bool = known("bool", False)
    """whether to ignore save optimizer and scheduler."""
    label_names: str | None = known("str", None, many=True)
    """The list of keys in your dictionary of inputs that correspond to the labels."""
    lazy_data_processing: bool = known("bool", True)
    """Whether use lazy data processing."""
    learning_rate: float = known("float", 5e-05, range={"least": 0, "most": 100})
    """The initial learning rate for AdamW."""
    load_best_model_at_end: bool = known("bool", False)
    """Whether or not to load the best model found during training at the end of training."""
    load_sharded_model: bool = known("bool", False)
    """When use sharding stage1 and set load_sharded_model True, it means loading the sharded model. The sharded model
    is saved when we set save_sharded_model True."""
    local_rank: int = known("int", -1, range={"least": -1, "most": 2147483647})
    """For distributed training: local_rank"""
    log_on_each_node: bool = known("bool", True)
    """When doing a multinode distributed training, whether to log once per node or just once on the main node."""
    logging_dir: str | None = known("str", None)
    """VisualDL log dir."""
    logging_first_step: bool = known("bool", True)
    """Log step 1, too."""
    logging_steps: int = known("int", 500, range={"least": 1, "most": 2147483647})
    """Log every X updates steps."""
    logging_strategy: str = known("str", "steps", choices=("no", "steps", "epoch"))
    """The logging strategy to use."""
    lora: bool = known("bool", False)
    """Train low-rank adapters, the model's own weights frozen."""
    lora_alpha: float | None = known("float", None, range={"above": 0})
    """Their product counts alpha / r times. Default: PaddleNLP's own, 2 r, or 4 with --rslora."""
    lora_dropout: float = known("float", 0.0, range={"least": 0, "below": 1})
    """Dropout on what the adapters read."""
    lora_plus_scale: float = known("float", 1.0, range={"above": 0})
    """LoRA+: the learning rate of lora_B is so many times that of lora_A; the paper takes 16."""
    lora_rank: int = known("int", 8, range={"least": 1, "most": 65536})
    """Rank r of the adapters."""
    lora_target_modules: str | None = known("str", None, many=True)
    """Linear layers with adapters, as PEFT names them: q_proj v_proj, regular expressions, or all-linear. Default:
    all."""
    loss_chunk_tokens: str = known("str", "auto")
    """Compute output layer and loss for so many tokens at a time, never the logits of a whole batch; auto: where this
    takes less than half of the memory, a sixteenth of a batch; off: all at once."""
    loss_collapse: float = known("float", 0.01, range={"least": 0, "below": 1})
    """Stop at less than this share of the first loss, in the first 100 steps and first epoch; 0: never."""
    loss_first: str = known("str", "auto")
    """Where the first loss of trained weights belongs, in nats, such as 1.8-2.5; auto: anywhere; off. For random
    weights (pretraining) it is ln V + h sigma^2/2 within 5 per cent, unless off."""
    loss_scale_hysteresis: int = known("int", 2, range={"least": 1, "most": 2147483647})
    """fp16: overflows since it last doubled, from which on each halves the loss scale."""
    loss_scale_window: int = known("int", 1000, range={"least": 1, "most": 2147483647})
    """fp16: the loss scale doubles after so many steps without an overflow."""
    loss_spike: float = known("float", 2.0, range={"least": 0})
    """Stop at a loss so many nats above the median of the last 20 logged ones; 0: never."""
    loss_watch: bool = known("bool", True)
    """Stop where the loss goes wrong, before the next checkpoint is written."""
    lr_end: float = known("float", 1e-07, range={"least": 0})
    """The end LR in the polynomial scheduler."""
    lr_scheduler_type: str = known("str", "linear", choices=("linear", "cosine", "constant", "constant_with_warmup",
        "polynomial"))
    """The scheduler type to use. suppor linear, cosine, constant, constant_with_warmup"""
    max_evaluate_steps: int = known("int", -1, range={"least": -1, "most": 2147483647})
    """If set to a positive number, the total number of evaluation steps to perform."""
    max_grad_norm: float = known("float", 1.0, range={"least": 0})
    """Max gradient norm."""
    max_run_minutes: float = known("float", 0, range={"least": 0})
    """Save and end after the step in which this time is over; 0: no limit."""
    max_steps: int = known("int", -1, range={"least": -1, "most": 2147483647})
    """If > 0: set total number of training steps to perform. Override num_train_epochs."""
    metric_for_best_model: str | None = known("str", None)
    """The metric to use to compare two different models."""
    metrics_output_path: str | None = known("str", None)
    """Where to save training metrics (None for skipping save)."""
    min_learning_rate: float = known("float", 0.0, range={"least": 0, "most": 10})
    """Where a cosine or linear schedule ends."""
    min_loss_scale: float = known("float", 1.0, range={"above": 0})
    """fp16: the loss scale never falls below it."""
    minimum_eval_times: int | None = known("int", None, range={"least": 1, "most": 2147483647})
    """If under eval_steps, the valid time is less then minimum_eval_times, the config of override eval_steps."""
    model_name_or_path: str | None = known("str", None)
    """Model directory, or the name of a configuration in launch/families/configs."""
    no_cuda: bool = known("bool", False)
    """Do not use CUDA even when it is available"""
    num_cycles: float = known("float", 0.5, range={"above": 0})
    """The number of waves in the cosine scheduler."""
    num_prefix_tokens: int = known("int", 128, range={"least": 1, "most": 2147483647})
    """How many of them in each layer."""
    num_train_epochs: float = known("float", 1.0, range={"above": 0, "most": 1000000})
    """Total number of training epochs to perform."""
    offload: str | None = known("str", None, choices=("activations",))
    """activations: the inputs of layers that --recompute computes again are in host memory between their forward and
    backward pass."""
    offload_embedding: bool = known("bool", False)
    """Keep the frozen word embedding in host memory, beside an adapter; a batch's rows are copied."""
    offload_optim: bool = known("bool", False)
    """Offload optimizer after optimizer.step()"""
    optim: str = known("str", "adamw", choices=("adamw", "adafactor", "adamw_mini", "adamw_custom",
        "adamw_16bit_moment", "adamw_8bit"))
    """The optimizer. adamw_16bit_moment and adamw_8bit keep its moments in so many bits, adafactor a second moment
    for each row and column; the last two without a float32 copy of weights in bfloat16."""
    ordered_save_group_size: int = known("int", 0, range={"least": 0, "most": 2147483647})
    """Select ordered_save_group_size to save checkpoint in ordered. if ordered_save_group_size=0, not used ordered
    save"""
    output_dir: str | None = known("str", None)
    """The output directory where the model predictions and checkpoints will be written."""
    output_signal_dir: str | None = known("str", None)
    """Asynchronous saving signal dir."""
    overwrite_output_dir: bool = known("bool", False)
    """Overwrite the content of the output directory. Use this to continue training if output_dir points to a
    checkpoint directory."""
    pad_token_id: int = known("int", 0, range={"least": 0, "most": 2147483647})
    """The id of the padding token."""
    past_index: int = known("int", -1, range={"least": -1, "most": 2147483647})
    """If >=0, uses the corresponding part of the output as the past state for next step."""
    pdc_download_ckpt: bool = known("bool", False)
    """Download checkpoint in paddlecloud longjob environment"""
    pdc_download_timeout: int = known("int", 300, range={"least": 0, "most": 2147483647})
    """Timeout seconds for downloading checkpoint from remote cluster."""
    per_device_eval_batch_size: int = known("int", 8, range={"least": 1, "most": 1000000})
    """Batch size per GPU core/CPU for evaluation."""
    per_device_train_batch_size: int = known("int", 8, range={"least": 1, "most": 1000000})
    """Batch size per GPU core/CPU for training."""
    pipeline_parallel_config: str = known("str", "", words=("disable_p2p_cache_shape", "disable_partial_send_recv",
        "enable_delay_scale_loss", "enable_dp_comm_overlap", "enable_sharding_comm_overlap", "enable_timer",
        "enable_release_grads", "enable_clear_every_step_cache", "enable_overlap_p2p_comm", "disable_batch_p2p_comm",
        "best_unbalanced_scheduler", "use_dualpipev"))
    """Some additional config it highly affect the useage of pipeline parallel, we provide some option to config
    it.following config is support: disable_p2p_cache_shape, if you max sequence length is varying, please set
    disable_p2p_cache_shape. disable_partial_send_recv, optmize send speed for tensor parallel.
    enable_delay_scale_loss, accumulate gradients until optimizer step, all gradients div by inner pipeline accumute
    step. instead of div accumute step on loss directly. enable_dp_comm_overlap, fuse data parallel gradient
    communication. enable_sharding_comm_overlap, fuse sharding stage 1 parallel gradient communication.
    enable_overlap_p2p_comm, overlap p2p communication with computation. enable_clear_every_step_cache, clear every
    step cache for pipeline parallel. disable_batch_p2p_comm, disable batched send/recv in pipeline parallel mode.
    enable_split_backward, only can be used in StaticGraph-AutoParallel! split the `backward` program into
    `backward_b` and `backward_w` to decrease the bubble in VPP pipeline mode when `acc_step == pp_degree`. it
    increase the memory!"""
    pipeline_parallel_degree: int = known("int", -1, range={"least": -1, "most": 65536})
    """Pipeline parallelism is parallel technique proposed in (https://arxiv.org/pdf/2104.04473.pdf see 2.2 Pipeline
    Model Parallelism). Pipeline parallelism assigns multi-transformer layers to different cards, the micro batch data
    stream passed between cards like pipelines.pipeline_parallel_degree means split all transformer layers to how many
    stages.default -1 for not use pipeline parallel.Note. this need model support in source code, see llama
    modeling_pp.py file"""
    pissa: bool = known("bool", False)
    """PiSSA: start the adapters from the r largest singular values of the weights, which keep the rest. The adapter
    is written as a plain LoRA of rank 2 r."""
    power: float = known("float", 1.0, range={"above": 0})
    """The power factor in the polynomial scheduler."""
    precision: str | None = known("str", None, choices=("auto", "bf16", "fp16", "fp32"))
    """What to compute in, instead of --bf16 and --fp16. auto: bfloat16 from A100 on and as --bf16 auto on a CPU,
    float16 on older cards, else float32; says why."""
    prediction_loss_only: bool = known("bool", False)
    """When performing evaluation and predictions, only returns the loss."""
    prefix_tuning: bool = known("bool", False)
    """Train keys and values before the first token's, the model's weights frozen."""
    quantize_head: bool = known("bool", False)
    """Keep the output layer in the format of --weight_quantize_algo, too, where it has its own weight."""
    recompute: bool = known("bool", False)
    """Recompute the forward pass to calculate gradients. Used for saving memory. Only support for networks with
    transformer blocks."""
    recompute_granularity: str = known("str", "full", choices=("full", "full_attn", "core_attn"))
    """What --recompute saves memory on."""
    refined_recompute: str = known("str", "")
    """The refined recompute parameter is designed to optimize the balance between GPU memory usage and computational
    speed. An example configuration could be:
    `attention_column_ln:-1,attention_row_ln:-1,flash_attn:-1,mlp_column_ln:5,mlp_row_ln:-1`. The supported parameters
    for refining recompute are `attention_column_ln`, `attention_row_ln`, `flash_attn`, `mlp_column_ln`, and
    `mlp_row_ln`. The associated number, `skip_num`, determines how many times to bypass recomputation for the
    specified operation. A `skip_num` of `-1` indicates no recomputation across all stages, maximizing memory usage; A
    `skip_num` of `0` enforces recomputation at every stage, minimizing memory usage. You can also set `skip_num` to a
    value within the range [1, ..., num_layers]. If `skip_num` exceeds `num_layers`, it will behave as if set to `-1`.
    If a parameter is omitted, it defaults to `xxx:0`."""
    release_grads: bool = known("bool", False)
    """Whether to release gradients during training. Default is `False`."""
    remove_unused_columns: bool = known("bool", True)
    """Remove columns not required by the model when using an nlp.Dataset."""
    report_to: str | None = known("str", None, many=True, choices=("none", "all", "visualdl", "autonlp", "wandb",
        "tensorboard"))
    """The list of integrations to report the results and logs to."""
    resume_changed: str = known("str", [], many=True, choices=("batch", "data", "model"))
    """What may differ from the run that is continued, else an error: batch (samples a step), data, model."""
    resume_from_checkpoint: str = known("str", "auto")
    """auto: continue from the newest whole checkpoint in --output_dir, if there is one; none: start at step 0; a
    path: continue from that checkpoint."""
    rslora: bool = known("bool", False)
    """rsLoRA: the adapters' product counts alpha / sqrt(r) times, not alpha / r."""
    run_name: str | None = known("str", None)
    """An optional descriptor for the run."""
    save_on_each_node: bool = known("bool", False)
    """When doing multi-node distributed training, whether to save models and checkpoints on each node, or only on the
    main one"""
    save_sharded_model: bool = known("bool", False)
    """When use sharding stage1 and set save_sharded_model True, each shanding rank only save part of the model. It
    reduce time to save the model."""
    save_sharding_stage1_model_include_freeze_params: bool = known("bool", False)
    """Save Sharding Stage1 Model Exclude Freeze Params"""
    save_steps: int = known("int", 500, range={"least": 1, "most": 2147483647})
    """Save checkpoint every X updates steps."""
    save_strategy: str = known("str", "steps", choices=("no", "steps", "epoch"))
    """The checkpoint save strategy to use."""
    save_total_limit: int | None = known("int", None, range={"least": -1, "most": 2147483647})
    """Limit the total amount of checkpoints. Deletes the older checkpoints in the output_dir. Default is unlimited
    checkpoints"""
    scale_loss: float = known("float", 32768, range={"above": 0})
    """The value of initial scale_loss for fp16."""
    seed: int = known("int", 42, range={"least": 0, "most": 4294967295})
    """Random seed that will be set at the beginning of training."""
    sep_parallel_degree: int = known("int", -1, range={"least": -1, "most": 65536})
    """The paddle sequence parallel strategy. It can reduce the GPU memory of activation to 1/sep, and it is
    orthogonal to data parallel, sharding stage1, tensor parallel and pipeline parallel strategy."""
    sequence_parallel: bool = known("bool", False)
    """Whether to enable sequence parallel."""
    sequence_parallel_config: str = known("str", "")
    """Some additional configs which affect sequence parallel performance, we provide some option to config
    it.following config is support: enable_allreduce_avg_in_gradinent_scale, it replace `allreduce_sum + scale`
    pattern with `allreduce_avg` when scale gradient in sequence_parallel, which improve the performance. ONLY
    supported for auto mode now."""
    sequence_slices: str = known("str", "off")
    """Compute MLPs and norms over so many slices of a micro batch's tokens, each computed again in the backward pass;
    auto: slices of 8192 tokens; off: whole. For long texts."""
    sharding: str = known("str", "", words=("stage1", "stage2", "stage3", "offload"))
    """Whether or not to use Paddle Sharding Data Parallel training (in distributed training only). The base option
    should be `stage1`, `stage2` or `stage3` and you can add CPU-offload to `stage2` or `stage3` like this: stage2
    offload` or `stage3 offload`."""
    sharding_comm_buffer_size_MB: int = known("int", -1, range={"least": -1, "most": 2147483647})
    """Set the size of the fuse gradient in sharding communication. This option only takes effect when the sharding
    option is turned on.The default value is -1, which means that the gradient size of all communication fuses follows
    the default configuration, which is 256MB."""
    sharding_degree: int = known("int", -1, range={"least": -1, "most": 65536})
    """@deprecated Please use sharding_parallel_degree."""
    sharding_parallel_config: str = known("str", "", words=("enable_stage1_tensor_fusion", "enable_stage1_overlap",
        "enable_stage2_overlap", "split_param", "disable_stage1_reduce_avg", "enable_stage1_broadcast_overlap",
        "enable_stage1_allgather_overlap", "enable_release_grads", "enable_fuse_optimizer_states"))
    """Some additional config it highly affect the useage of sharding parallel, we provide some option to config
    it.following config is support: enable_stage1_tensor_fusion, fuse small tensors into big tensor chunks to
    accelerate communications, may increase memory occupation enable_tensor_fusion, fuse small tensors into big tensor
    chunks to accelerate communications, may increase memory occupation only used for semi auto mode.
    enable_stage1_overlap, fuse small tensors into big tensor chunks to accelerate communications and do communication
    overlap with backward computation, may harm the backward speed enable_overlap, fuse small tensors into big tensor
    chunks to accelerate communications and do communication overlap with backward computation, may harm the backward
    speed only used for semi auto mode. disable_stage1_reduce_avg, replace reduce_avg with original reduce_sum+scale
    in stage1, which can be used for accuracy verification. enable_stage2_overlap, overlap stage2 NCCL communication
    with computation. There are some constraints for the overlap, such as the logging_step should be bigger than 1 for
    broadcast overlap and no other sync could be called during the training for broadcast overlap
    enable_stage1_broadcast_overlap, overlap stage1 V1 broadcast with next step forward computation. There are some
    constraints for the overlap, such as the logging_step should be bigger than 1 for broadcast overlap forward
    compute and no other sync could be called during the training for broadcast overlap.
    enable_stage1_allgather_overlap, overlap stage1 V2 allgather with next step forward computation. There are some
    constraints for the overlap, such as the logging_step should be bigger than 1 for allgather overlap forward
    compute and no other sync could be called during the training for allgather overlap."""
    sharding_parallel_degree: int = known("int", -1, range={"least": -1, "most": 65536})
    """Sharding parameter in certain cards group. For example, aussume we use 2 machines each with 8 cards, then set
    sharding_degree=8, sharding will only communication inside machine. default -1 means sharding parameters between
    all workers."""
    sharding_parallel_mesh_dimension: str = known("str", "dp")
    """Specifies the name of the dimension in a multi-dimensional parallelism mesh that is responsible for sharding.
    default `dp` for default parallelism mesh."""
    skip_data_intervals: str | None = known("int", None, range={"least": 0, "most": 2147483647}, many=True)
    """The intervals to skip, pass start global step and end global step at each interval"""
    skip_memory_metrics: bool = known("bool", True)
    """Whether or not to skip adding of memory profiler reports to metrics."""
    skip_profile_timer: bool = known("bool", True)
    """enable framework timer, will output timeline informatoin in logging and visualdl."""
    split_inputs_sequence_dim: bool = known("bool", True)
    """The paddle sequence parallel strategy can reduce the GPU memory of activation to 1/sep .If it is true, trainer
    will cut input in sequence dim"""
    tensor_parallel_config: str = known("str", "", words=("enable_mp_async_allreduce", "enable_mp_skip_c_identity",
        "enable_mp_fused_linear_param_grad_add", "enable_sp_async_reduce_scatter", "enable_delay_scale_loss",
        "sync_param", "sync_grad", "sync_moment"))
    """Some additional configs which affect model parallel performance, we provide some option to config it.following
    config is support: enable_mp_async_allreduce, it supports all_reduce(dx) overlap with matmul(dw) in
    ColumnParallelLinear backward when it set True, which can accelerate model parallel performance.
    enable_mp_skip_c_identity, it supports skip c_identity in ColumnParallelLinear and RowParallelLinear. It only
    works when set mp_async_allreduce is True. It can accelerate model parallel further.
    enable_mp_fused_linear_param_grad_add, it supports fused_linear_param_grad_add in ColumnParallelLinear (cuda >=
    11.6). It only works when mp_async_allreduce is true. It can accelerate model parallel further.
    enable_sp_async_reduce_scatter, it supports async reduce_scatter in ColumnSequenceParallelLinear. It only works
    when set sp_async_reduce_scatter is True. It can accelerate sequence parallel further. enable_delay_scale_loss,
    accumulate gradients until optimizer step, all gradients div by accumute step. instead of div accumute step on
    loss directly. sync_param, in optimizer step, use broadcast to sync parameters those attr 'is_distributed' is
    False. sync_grad, in optimizer step, use broadcast to sync gradients those attr 'is_distributed' is False.
    sync_moment, in optimizer step, use broadcast to sync momentums those attr 'is_distributed' is False.
    replace_with_c_embedding, it supports replacing col-sliced embedding with row-sliced c_embedding when it set True,
    which is used in PIR auto_parallel. replace_with_parallel_cross_entropy, it replaces 'cross_entropy_with_softmax'
    OP with 'c_softmax_with_cross_entropy' OP in PIR static graph, which can improve model parallel performance."""
    tensor_parallel_degree: int = known("int", -1, range={"least": -1, "most": 65536})
    """Tensor parallelism is parallel technique proposed in (https://arxiv.org/pdf/2104.04473.pdf see 2.3 Tensor Model
    Parallelism). This techique splits one transformer layer into multi-cards (For examples, tensor_parallel_degree=4,
    will split a layer to 4-parts) tensor_parallel_degree means split the transformer layer to how many parts.default
    -1 for not use tensor parallel, Suggest tensor_parallel_degree<=8 for better proformance.Note, this need model
    support in source code, currently GPT/BLOOM/LLAMA/BLOOM/CLM/CHATGLM is supported."""
    tensor_parallel_overlap: SwitchValue = known("switch", "auto", alone="on")
    """auto: under tensor parallel, sum gradients over the ranks while those of weights are computed, on cards;
    required: or an error."""
    to_static: bool = known("bool", False)
    """Whether to train model under static mode by jit.to_static or distributed.to_static."""
    tokenizer_name_or_path: str | None = known("str", None)
    """Tokenizer directory or name. Default: the model's."""
    trainable_token_indices: str | None = known("int", None, range={"least": 0, "most": 2147483647}, many=True)
    """Ids of tokens whose embeddings, and rows of an untied output layer, are trained beside the adapters, as in
    PEFT. launch/commands/add_tokens.py adds tokens to a model and prints their ids."""
    unified_checkpoint: bool = known("bool", False)
    """Whether to unify hybrid parallel checkpoint."""
    unified_checkpoint_config: str = known("str", "", words=("skip_save_model_weight", "master_weight_compatible",
        "remove_master_weight", "async_save", "enable_all_options", "ignore_merge_optimizer"))
    """Configs to unify hybrid parallel checkpoint. Following options are supports: - skip_save_model_weight: do not
    save model weights when the masters weight exist - master_weight_compatible: 1. if the master weights exist, only
    load when needed 2. if master weights does not exist, convert model weights to master weights when needed -
    remove_master_weight: same with `master_weight_compatible`, use in checkpoint quantization. - async_save: enable
    asynchronous saving checkpoints to disk - enable_all_options: enable all optimization configurations"""
    update_in_backward: bool = known("bool", False)
    """Update each parameter within the backward pass, so that one gradient is in memory at a time; clipping uses the
    norm of the step before."""
    use_async_save: bool = known("bool", False)
    """Whether to use async_save instead of paddle.save."""
    use_expert_parallel: bool = known("bool", False)
    """Enable MoE (Mixture of Experts) expert parallel training"""
    use_flash_attention: SwitchValue = known("switch", "auto", alone="on")
    """auto: where card and model can; required: an error where they cannot."""
    use_fused_rms_norm: SwitchValue = known("switch", "auto", alone="on")
    """auto: the module fused_ln where it is built, else on cards Paddle's own; required: fused_ln or an error."""
    use_fused_rope: SwitchValue = known("switch", "auto", alone="on")
    """auto: rotary embeddings by one kernel, where card and model can; required: or an error."""
    wandb_api_key: str | None = known("str", None)
    """Weights & Biases (WandB) API key(s) for authentication with the WandB service."""
    wandb_http_proxy: str | None = known("str", None)
    """Weights & Biases (WandB) http proxy for connecting with the WandB service."""
    warmup_ratio: float = known("float", 0.0, range={"least": 0, "most": 1})
    """Linear warmup over warmup_ratio fraction of total steps."""
    warmup_steps: int = known("int", 0, range={"least": 0, "most": 2147483647})
    """Linear warmup over warmup_steps."""
    weight_blocksize: int = known("int", 64, range={"least": 1, "most": 2147483647})
    """Weights that share a scale in nf4 and fp4."""
    weight_decay: float = known("float", 0.0, range={"least": 0})
    """Weight decay for AdamW if we apply some."""
    weight_double_quant: bool = known("bool", False)
    """Keep the scales of nf4 and fp4 in 8 bits, not in 32."""
    weight_double_quant_block_size: int = known("int", 256, range={"least": 1, "most": 2147483647})
    """Scales that share a scale with --weight_double_quant."""
    weight_quantize_algo: str | None = known("str", None, choices=("weight_only_int8", "weight_only_int4", "nf4", "fp4",
        "llm.int8"))
    """Keep the frozen weights of linear layers in 8 or 4 bits."""


@dataclass(frozen=True, init=False, repr=False, eq=False)
class MethodFlags(CommonFlags):
    """These, and the flags of some methods: None in other runs. Defaults are the method's."""

    algorithm: str | None = known("str")
    """grpo; dr_grpo: without standard deviation and length in the divisor; dapo: mean over tokens, a higher upper
    clip, truncated answers masked; gspo: the ratio of whole answers; rloo: compared with the others."""
    answer_column: str | None = known("str")
    """Key of the right answer. Default: answer, solution, ground_truth, target, else the last answer."""
    beta: float | None = known("float", range={"above": 0, "most": 1000})
    """How strongly the reference holds the policy; tau of IPO, beta of SimPO."""
    chat_template: str | None = known("str")
    """How turns become text: a name, file or none. Default: none for pairs, else the model's."""
    clip_high: float | None = known("float", range={"above": 0, "most": 1000})
    """How far a ratio may rise above 1. Default: 0.2, of dapo 0.28, of gspo 0.0004."""
    clip_low: float | None = known("float", range={"above": 0, "below": 1})
    """How far a ratio may fall below 1. Default: 0.2, of gspo 0.0003."""
    data_cache: str | None = known("str")
    """Where sample indices are cached. Default: index_cache beside the data."""
    dataset_name_or_path: str | None = known("str", many=True)
    """Folder with train.json and dev.json, one file, or weights and these: 0.7 a 0.3 b."""
    desirable_weight: float | None = known("float", range={"least": 0})
    """kto: the weight of desired responses, lambda_D."""
    eval_with_do_generation: bool | None = known("bool")
    """Evaluate by answers, too: BLEU and ROUGE, and what was said in OUTPUT/predictions."""
    group_size: int | None = known("int", range={"least": 2, "most": 4096})
    """Answers to each prompt, which are compared with each other."""
    input_dir: str | None = known("str", many=True)
    """Directory with .bin/.idx files, one prefix, or weights and prefixes: 0.7 a 0.3 b."""
    kl_weight: float | None = known("float", range={"least": 0})
    """Weight of the divergence from the model before training; 0: not computed."""
    label_smoothing: float | None = known("float", range={"least": 0, "below": 0.5})
    """sigmoid, simpo: the share of pairs that are taken to be the wrong way round."""
    loss_type: str | None = known("str")
    """The loss. Of pairs, sigmoid: DPO; hinge: SLiC; ipo: IPO; simpo: SimPO; or: ORPO; the last two need no
    reference. Of single responses, kto: KTO."""
    mask_truncated: bool | None = known("bool")
    """Answers that reach the largest length count for nothing. Default: 0, of dapo 1."""
    max_broken_rows: int | None = known("int", range={"least": 0, "most": 2147483647})
    """Rows that cannot be read and are left out, at most; more stop the run."""
    max_eval_samples: int | None = known("int", range={"least": -1, "most": 2147483647})
    """Evaluate on this many samples of the valid split at most; -1: on all."""
    max_length: int | None = known("int", range={"least": 2, "most": 2147483647})
    """Tokens of a sample, at most."""
    max_log_ratio: float | None = known("float", range={"above": 0})
    """Stop where sampler and trainer disagree by more than this in the logarithm of a probability, before the first
    update of a rollout. Default: 0.001 in float32, 1 in half precision."""
    max_seq_length: int | None = known("int", range={"least": 1, "most": 2147483647})
    """Tokens a sample."""
    neftune: bool | None = known("bool")
    """NEFTune: add uniform noise to the embeddings during training."""
    neftune_noise_alpha: float | None = known("float", range={"above": 0})
    """NEFTune: the noise is at most this / sqrt(tokens of a row x hidden size)."""
    pad_to_multiple_of: int | None = known("int", range={"least": 1, "most": 2147483647})
    """Pad batches to a length that this divides: 8 suits tensor cores."""
    pref_loss_ratio: float | None = known("float", range={"least": 0})
    """The weight of the preference loss. Default: 1, of ORPO 0.1, its lambda."""
    prompt_column: str | None = known("str")
    """Key of the question in each row. Default: found in the first rows."""
    redraw_rounds: int | None = known("int", range={"least": 0, "most": 2147483647})
    """Rounds that replace prompts whose answers are all worth the same by the next ones, at most."""
    reference: str | None = known("str")
    """That model, with --kl_weight. adapter_off: the model without its LoRA; copy: a second copy of it; auto:
    adapter_off with --lora 1, else copy."""
    reference_free: bool | None = known("bool")
    """Without a reference, which then finds all responses equally likely."""
    response_column: str | None = known("str")
    """Key of the answer in each row. Default: found in the first rows."""
    reward: str | None = known("str", many=True)
    """What an answer is worth: number, choice, exact, tool, json, regex:PATTERN, length:TOKENS, FILE.py:FUNCTION or
    command:COMMAND; several with weights: 0.9 number 0.1 json."""
    reward_gigabytes: float | None = known("float", range={"above": 0})
    """Memory of a process that rewards."""
    reward_sandbox: bool | None = known("bool")
    """command: has no network. Stops where the kernel allows no such sandbox."""
    reward_seconds: float | None = known("float", range={"above": 0})
    """Time for the reward of one answer; what takes longer is worth 0."""
    rollout_passes: int | None = known("int", range={"least": 1, "most": 2147483647})
    """Times that these steps are made with the same answers; 2: two updates by each."""
    rollout_steps: int | None = known("int", range={"least": 1, "most": 2147483647})
    """Steps that learn from answers sampled together, before the first of them."""
    sample_steps: int | None = known("int", range={"least": 0, "most": 2147483647})
    """Write the answers of every so many rollouts to OUTPUT/rollouts; 0: none."""
    sampled_at_once: int | None = known("int", range={"least": 1, "most": 65536})
    """Answers that are sampled at the same time, at most."""
    sft_loss_ratio: float | None = known("float", range={"least": 0})
    """The weight of the chosen response's own mean -ln p beside it. Default: 0, of ORPO 1."""
    simpo_gamma: float | None = known("float", range={"least": 0})
    """simpo: by how much the chosen response's reward should be higher."""
    split: str | None = known("str")
    """Shares of train, valid and test documents."""
    src_length: int | None = known("int", range={"least": 1, "most": 2147483647})
    """Tokens of a question, at most: its end is kept."""
    teacher: str | None = known("str")
    """Directory of a model with the same tokenizer: each token becomes likelier by how much likelier it is to this
    model (on-policy distillation). --reward is measured then, if given, and teaches nothing."""
    temperature: float | None = known("float", range={"above": 0})
    """By which logits are divided, in sampling and in the loss alike."""
    top_k: int | None = known("int", range={"least": 0, "most": 2147483647})
    """Sample among so many of the most likely tokens; 0: among all."""
    top_p: float | None = known("float", range={"above": 0, "most": 1})
    """Sample among the fewest tokens whose probabilities add up to it."""
    trained_answers: str | None = known("str")
    """Answers of a chat that count in the loss: all, each as it is served, or the last."""
    undesirable_weight: float | None = known("float", range={"least": 0})
    """kto: the weight of undesired responses, lambda_U."""
    zero_padding: bool | None = known("bool")
    """Pack several dialogues into each row of max_length tokens; none sees another. Less padding."""
