"""Sums of gradients over tensor parallel ranks beside the products of weights' gradients."""

from typing import Any

from launch.switches.switch import NO_CARD, Decision, Obstacle, Switch, SwitchCase

# Words of --tensor_parallel_config for the same; without sequence parallel, and with it.
ALL_REDUCE, SHARED_INPUT = "enable_mp_async_allreduce", "enable_mp_skip_c_identity"
REDUCE_SCATTER = "enable_sp_async_reduce_scatter"


class TensorParallelOverlap(Switch):
    """The switch of the overlap."""

    flag = "tensor_parallel_overlap"
    subject = "tensor parallel"
    feature = "tensor parallel beside products"
    instead = "one after the other"
    cases = (
        Obstacle(
            lambda case: bool(case.frozen),
            "{case.frozen}: no product of a weight's gradient is there to hide the sum over the ranks",
            "paddle/distributed/fleet/layers/mpu/mp_layers.py, InnerOverlapLinear.backward; "
            "paddlenlp/peft/lora/lora_layers.py, ColumnParallelLoRALinear.forward",
        ),
        Obstacle(
            lambda case: case.level == "O1",
            "under --fp16_opt_level O1 inputs and gradients have different dtypes; O2 has it",
            "paddle/distributed/fleet/layers/mpu/mp_layers.py, InnerOverlapLinear.backward",
        ),
        *NO_CARD,
    )

    def concerns(self, case: SwitchCase) -> bool:
        """Return True where ranks share a layer, unless --tensor_parallel_config requests the overlap by itself."""
        return case.tensor_parallel_degree > 1 and not {ALL_REDUCE, REDUCE_SCATTER} & set(case.words)

    def planned(self, values: Any, case: SwitchCase) -> bool:
        """Return True if a plan counts on it, be it that --tensor_parallel_config requests it."""
        words = (REDUCE_SCATTER,) if case.sequence_parallel else (ALL_REDUCE, SHARED_INPUT)
        by_words = case.tensor_parallel_degree > 1 and not case.frozen and set(words) <= set(case.words)
        return by_words or super().planned(values, case)

    def trial(self, case: SwitchCase) -> str:
        """Try it on a linear layer that the ranks share."""
        from launch.switches import kernel_trials

        return kernel_trials.overlap_fault(case.dtype, case.sequence_parallel)

    def start(self, values: Any, case: SwitchCase) -> Decision:
        """Return the decision, and switch the overlap on."""
        from launch.switches import kernel_trials

        decision = super().start(values, case)
        if decision.enabled:
            kernel_trials.overlap(case.sequence_parallel)
        return decision


OVERLAP = TensorParallelOverlap()
