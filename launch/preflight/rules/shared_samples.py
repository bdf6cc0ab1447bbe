"""Several ranks to a sample (--sep_parallel_degree): what cannot be divided over them, and what was never tried."""

from launch.families.parameters import HEADS
from launch.preflight.rules.rule import Rule

SHARING = "launch/training/sequence_ranks.py"
ULYSSES = "arXiv 2309.14509, section 3.1"
# Flags that need whole samples -> why.
OF_WHOLE_SAMPLES = {
    "prefix_tuning": "a prefix would be exchanged as if it were a part of the sample",
    "eval_with_do_generation": "answers grow token by token, which are not divided",
    "neftune": "the noise follows from the length of the whole sample",
}


RULES = (
    Rule(
        flag="sep_parallel_degree",
        when=lambda run: run.shared > 1 and run.family is not None and not run.family.shares_samples,
        found="{run.shared} for {run.family.title}",
        reason="ranks exchange heads around an attention function of its own, with rotary positions, which this model "
        "lacks",
        source=SHARING,
        fix="--sep_parallel_degree 1, or a model like LLaMA, Qwen2, Qwen3 or ERNIE 4.5",
    ),
    Rule(
        flag="sep_parallel_degree",
        when=lambda run: not run.divides(run.shared, *HEADS),
        found="{run.shared} for {run.heads} attention heads",
        reason="in attention each rank takes as many heads",
        source=ULYSSES,
        fix="a degree that divides {run.heads}: {run.head_divisors}",
    ),
    Rule(
        flag="sep_parallel_degree",
        when=lambda run: run.divides(run.shared, *HEADS) and not run.divides(run.shared, "num_key_value_heads"),
        found="{run.shared} for {run.model[num_key_value_heads]} key/value heads",
        reason="in attention each rank takes as many of them",
        source=ULYSSES,
        fix="a degree that divides {run.model[num_key_value_heads]}",
    ),
    Rule(
        flag="max_seq_length",
        when=lambda run: (run.flags.max_seq_length or 0) % run.shared != 0,
        found="{run.flags.max_seq_length} with --sep_parallel_degree {run.shared}",
        reason="a sample is cut into equal parts",
        source=SHARING,
        fix="a multiple of {run.shared}",
    ),
    Rule(
        flag="sep_parallel_degree",
        when=lambda run: run.shared > 1 and (run.tensor > 1 or run.pipeline > 1),
        found="{run.shared} on {run.layout}",
        reason="ranks that share a sample are taken for neighbors of data parallel or sharding",
        source=SHARING,
        fix="--tensor_parallel_degree 1 --pipeline_parallel_degree 1, or --sep_parallel_degree 1",
    ),
    Rule(
        flag="sep_parallel_degree",
        when=lambda run: (
            run.shared > 1
            and (run.flags.loss_type is not None or bool(run.flags.sampled_at_once) or run.run.method.reward_model)
        ),
        found="{run.shared} with a loss of whole texts",
        reason="a rank has a part of each",
        source=SHARING,
        fix="--sep_parallel_degree 1; pretraining and fine-tuning have it",
    ),
    *(
        Rule(
            flag=flag,
            when=lambda run, flag=flag: run.shared > 1 and bool(getattr(run.flags, flag)),
            found="1 with --sep_parallel_degree {run.shared}",
            reason=reason,
            source=SHARING,
            fix=f"--{flag} 0",
        )
        for flag, reason in OF_WHOLE_SAMPLES.items()
    ),
)
