"""The fused rotary embedding: one kernel in place of separate operators."""

from launch.switches.switch import NO_CARD, Obstacle, Switch, SwitchCase


class FusedRope(Switch):
    """The switch of the fused rotary embedding."""

    flag = "use_fused_rope"
    subject = "rotary embedding"
    feature = "fused rotary embedding"
    instead = "separate operators"
    cases = (
        Obstacle(
            lambda case: not case.family.fused_rope,
            "paddlenlp's code of this model never calls it",
            "launch/families, the family's module: fused_rope",
        ),
        Obstacle(
            lambda case: bool(case.past_keys),
            "{case.past_keys}: paddlenlp's code refuses keys from before the sample",
            "paddlenlp/transformers/llama/fusion_ops.py, fusion_rope; qwen2/modeling.py, Qwen2Attention.forward",
        ),
        Obstacle(
            lambda case: case.shared > 1,
            "--sep_parallel_degree {case.shared}: the kernel was never tried with positions of a part of the tokens",
            "launch/training/sequence_ranks.py",
        ),
        *NO_CARD,
    )

    def trial(self, case: SwitchCase) -> str:
        """Try it on the queries and keys of one rank."""
        from launch.switches import kernel_checks, kernel_trials

        return kernel_trials.rope_fault(kernel_checks.heads_of(case, alibi=False), case.dtype)


FUSED_ROPE = FusedRope()
