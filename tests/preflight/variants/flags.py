"""Flags and values that there are not, and flags of PaddleNLP that are not supported here."""

from tests.preflight.variants.variant import PRETRAIN, TINY, wrong

UNSUPPORTED = {
    "sep_parallel_degree": "2",
    "context_parallel_degree": "2",
    "expert_parallel_degree": "2",
    "expert_tensor_parallel_degree": "2",
    "use_expert_parallel": "True",
    "enable_auto_parallel": "True",
    "to_static": "True",
    "data_parallel_config": "gradient_sync_after_accumulate",
    "sequence_parallel_config": "enable_allreduce_avg_in_gradinent_scale",
    "auto_parallel_resume_form_hybrid_parallel": "True",
    "flatten_param_grads": "True",
    "refined_recompute": "flash_attn:1",
    "do_export": "True",
    "no_cuda": "True",
}

VARIANTS = [
    wrong(PRETRAIN, "--max_step 10", ("--max_step", "unknown flag")),
    wrong(PRETRAIN, "--sharding stage4", ("--sharding", "found 'stage4'")),
    wrong(PRETRAIN, "--lr_scheduler_type cosinus", ("--lr_scheduler_type", "found 'cosinus'")),
    wrong(PRETRAIN, "--merge_weights True", ("--merge_weights", "a flag of PaddleNLP")),
    wrong(PRETRAIN, "--virtual_pp_degree 2", ("--virtual_pp_degree", "interleaved pipeline")),
    wrong(TINY, "--max_steps ten", ("--max_steps", "found 'ten'")),
    wrong(PRETRAIN, "--prefix_tuning 1", ("--prefix_tuning", "1 in pretraining")),
    wrong(PRETRAIN, "--optim adafactor", ("--optim", "has no such optimizer")),
    *(wrong(PRETRAIN, f"--{flag} {value}", (f"--{flag}", f"{value}: ")) for flag, value in UNSUPPORTED.items()),
]
