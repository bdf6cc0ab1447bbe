"""Flags that upstream's arguments have and that nothing here acts on: refused instead of ignored."""

from launch.preflight.rules.rule import Rule

AUTOMATIC = "for upstream's automatic parallelism only, which this repository does not use"
NOT_HERE = "not supported in this repository"
ARGUMENTS = "paddlenlp/trainer/training_args.py, TrainingArguments.__post_init__"

# flag -> (values that ask for nothing, why another is refused)
FLAGS = {
    "sep_parallel_degree": ((-1, 0, 1), NOT_HERE),
    "context_parallel_degree": ((-1, 0, 1), NOT_HERE),
    "expert_parallel_degree": ((-1, 0, 1), NOT_HERE),
    "expert_tensor_parallel_degree": ((-1, 0, 1), NOT_HERE),
    "use_expert_parallel": ((False,), NOT_HERE),
    "enable_auto_parallel": ((False,), AUTOMATIC),
    "to_static": ((False,), AUTOMATIC),
    "data_parallel_config": (("",), AUTOMATIC),
    "sequence_parallel_config": (("",), AUTOMATIC),
    "auto_parallel_resume_form_hybrid_parallel": ((False,), AUTOMATIC),
    "flatten_param_grads": ((False,), "upstream has it for NPUs only"),
    "refined_recompute": (("",), "nothing passes it to the model"),
    "do_predict": ((False,), NOT_HERE),
    "do_export": ((False,), NOT_HERE),
    "no_cuda": ((False,), "upstream does not read it: --device cpu"),
}

RULES = tuple(
    Rule(
        flag=flag,
        when=lambda run, flag=flag, nothing=nothing: getattr(run.flags, flag) not in (None, *nothing),
        found=f"{{run.flags.{flag}}}",
        reason=reason,
        source=ARGUMENTS,
        fix="leave it out",
    )
    for flag, (nothing, reason) in FLAGS.items()
)
