"""What a model family lacks, from the modules of launch/families. Flash attention has a gate of its own."""

from launch.families.family import FEATURES
from launch.preflight.rules.rule import Rule

# feature -> (the flag that asks for it, whether it does, what to do instead)
ASKED_BY = {
    "pretrain": (
        "model_name_or_path",
        lambda run: run.flags.script == "run_pretrain",
        "--model_name_or_path names a model of another family",
    ),
    "tensor_parallel": ("tensor_parallel_degree", lambda run: run.tensor > 1, "--tensor_parallel_degree 1"),
    "pipeline_parallel": ("pipeline_parallel_degree", lambda run: run.pipeline > 1, "--pipeline_parallel_degree 1"),
    "sequence_parallel": (
        "sequence_parallel",
        lambda run: bool(run.flags.sequence_parallel),
        "--sequence_parallel 0",
    ),
    "recompute": ("recompute", lambda run: bool(run.flags.recompute), "--recompute 0"),
    "packing": ("zero_padding", lambda run: bool(run.flags.zero_padding), "--zero_padding 0"),
    "lora": ("lora", lambda run: bool(run.flags.lora), "--lora 0"),
    "prefix": ("prefix_tuning", lambda run: bool(run.flags.prefix_tuning), "--lora 1 instead of --prefix_tuning 1"),
}

RULES = tuple(
    Rule(
        flag=flag,
        when=lambda run, feature=feature, asked=asked: bool(run.lacking.get(feature)) and asked(run),
        found=f"{{run.family.title}} has no {FEATURES[feature]}",
        reason=f"{{run.lacking[{feature}]}}",
        source="launch/families/registry.py",
        fix=fix,
    )
    for feature, (flag, asked, fix) in ASKED_BY.items()
)
