"""How the optimizer updates: moments in 8 bits or factored, and updates within the backward pass."""

from launch.preflight.rules.rule import ANNOUNCE, Request, Rule

EIGHT_BITS = "launch/training/eight_bit_moments.py"
FACTORED = "launch/training/factored_moments.py"
IN_BACKWARD = "launch/training/update_in_backward.py"
# Whose update of a parameter needs no other parameter.
ONE_BY_ONE = (None, "adamw", "adamw_16bit_moment", "adamw_8bit", "adafactor")
COPYLESS = ("adamw_8bit", "adafactor")  # without a float32 copy of the weights


def in_backward(run: Request) -> bool:
    """Return whether parameters are updated within the backward pass."""
    return bool(run.flags.update_in_backward)


RULES = (
    Rule(
        flag="optim",
        when=lambda run: run.flags.optim == "adamw_8bit" and run.layout.processes > 1,
        found="adamw_8bit on {run.layout}",
        reason="elements that share a scale are of one process",
        source=EIGHT_BITS,
        fix="--optim adamw_16bit_moment, or one process",
    ),
    Rule(
        flag="optim",
        when=lambda run: run.flags.optim == "adafactor" and run.layout.processes > 1,
        found="adafactor on {run.layout}",
        reason="the means of rows, columns and the update are those of one process",
        source=FACTORED,
        fix="--optim adamw_16bit_moment, or one process",
    ),
    Rule(
        flag="offload_optim",
        when=lambda run: run.flags.optim == "adafactor" and bool(run.flags.offload_optim),
        found="1 with --optim adafactor",
        reason="moments of rows and columns are small and stay on the card",
        source=FACTORED,
        fix="--offload_optim 0",
    ),
    *(
        Rule(
            flag=name,
            when=lambda run, name=name: run.flags.optim == "adafactor" and name in run.flags.explicit,
            found="does nothing with --optim adafactor",
            reason="it has no first moment, and its second moments decay by the number of the step",
            source=FACTORED,
            action=ANNOUNCE,
        )
        for name in ("adam_beta1", "adam_beta2", "adam_epsilon")
    ),
    Rule(
        flag="optim",
        when=lambda run: run.flags.optim in COPYLESS and run.may_use_float16 and run.flags.fp16_opt_level == "O2",
        found="{run.flags.optim} in float16",
        reason="there is no float32 copy of the weights, and float16 has no room for small changes of them",
        source=EIGHT_BITS,
        fix="--precision bf16, on a card that has it",
    ),
    Rule(
        flag="update_in_backward",
        when=lambda run: in_backward(run) and run.layout.processes > 1,
        found="1 on {run.layout}",
        reason="the sum of gradients over processes is there after the backward pass",
        source=IN_BACKWARD,
        fix="--update_in_backward 0, or one process",
    ),
    Rule(
        flag="update_in_backward",
        when=lambda run: in_backward(run) and run.flags.gradient_accumulation_steps > 1,
        found="1 with --gradient_accumulation_steps {run.flags.gradient_accumulation_steps}",
        reason="each backward pass updates, and no gradient is there to add the next one to",
        source=IN_BACKWARD,
        fix="--gradient_accumulation_steps 1, and a larger --per_device_train_batch_size",
    ),
    Rule(
        flag="update_in_backward",
        when=lambda run: in_backward(run) and run.may_use_float16,
        found="1 in float16",
        reason="a gradient that overflows is found when other weights are updated already",
        source=IN_BACKWARD,
        fix="--precision bf16, on a card that has it, or fp32",
    ),
    Rule(
        flag="update_in_backward",
        when=lambda run: in_backward(run) and bool(run.flags.amp_master_grad) and run.in_16_bits,
        found="1 with --amp_master_grad 1",
        reason="gradients in float32 are kept beside the parameters, where it does not look",
        source=IN_BACKWARD,
        fix="--amp_master_grad 0",
    ),
    Rule(
        flag="update_in_backward",
        when=lambda run: in_backward(run) and run.flags.optim not in ONE_BY_ONE,
        found="1 with --optim {run.flags.optim}",
        reason="its update is not made parameter by parameter",
        source=IN_BACKWARD,
        fix="--optim adamw_8bit, adafactor, adamw_16bit_moment or adamw",
    ),
    Rule(
        flag="offload_optim",
        when=lambda run: in_backward(run) and bool(run.flags.offload_optim) and run.flags.optim not in COPYLESS,
        found="1 with --update_in_backward 1 --optim {run.flags.optim}",
        reason="upstream brings all states to the card after the backward pass, which needs them before",
        source="paddlenlp/trainer/trainer.py, Trainer._reload_optimizer",
        fix="--optim adamw_8bit, whose states come in pages; --optim adafactor --offload_optim 0 has few",
    ),
)
