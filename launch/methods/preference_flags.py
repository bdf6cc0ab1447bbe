"""The losses of preference tuning (--loss_type), and what each of them reads. No Paddle."""

from typing import Any

# Loss -> whether it compares the policy with a reference.
COMPARES = {"sigmoid": True, "hinge": True, "ipo": True, "simpo": False, "or": False, "kto": True}
TITLES = {"sigmoid": "DPO", "hinge": "SLiC", "ipo": "IPO", "simpo": "SimPO", "or": "ORPO", "kto": "KTO"}
# That learns from single responses, desired or not, instead of pairs.
KTO = "kto"
# Of the mean log-probability of a response's tokens, not of their sum.
OF_MEANS = ("ipo", "simpo", "or")
# Those that --label_smoothing changes.
SMOOTHED = ("sigmoid", "simpo")

# Where the reference's log-probabilities come from.
NONE, ADAPTER_OFF, SECOND_COPY, PRECOMPUTED = "", "adapter off", "second copy", "precomputed"
AUTO = "auto"
REFERENCES = {AUTO: NONE, "adapter_off": ADAPTER_OFF, "copy": SECOND_COPY, "precomputed": PRECOMPUTED}  # --reference


def rows_of(loss_type: str | None) -> int:
    """Return the rows of a sample in a batch: a pair, also one of a reward model, has two."""
    return 1 if loss_type == KTO else 2


def reference_of(loss_type: str, reference_free: bool, lora: bool, wanted: str = AUTO) -> str:
    """Return the reference that a preference loss needs, one of REFERENCES. wanted: the value of --reference.

    An unknown loss counts as needing one: the check of the flags reports it.
    """
    if reference_free or not COMPARES.get(loss_type, True):
        return NONE
    return REFERENCES.get(wanted) or (ADAPTER_OFF if lora else SECOND_COPY)


def reference_of_flags(values: Any) -> str:
    """Return what a run's loss compares with; NONE of a method without --loss_type, --kl_weight and --teacher.

    A teacher is a second model, as a copy is.

    Args:
        values: Of the flags.
    """
    if values.teacher:
        return SECOND_COPY
    if values.loss_type is None:
        return reference_of("sigmoid", not values.kl_weight, values.lora, values.reference)
    return reference_of(values.loss_type, values.reference_free, values.lora, values.reference)


def weights_of(values: Any) -> tuple[float, float]:
    """Return the weights of the preference loss and of the chosen responses' own loss, explicit or by default.

    ORPO's defaults are its paper's: lambda 0.1 beside the loss of fine-tuning (arXiv 2403.07691, equation 6 and section
    5.1).

    Args:
        values: with loss_type, pref_loss_ratio and sft_loss_ratio as attributes.
    """
    odds = values.loss_type == "or"
    preference = (0.1 if odds else 1.0) if values.pref_loss_ratio is None else values.pref_loss_ratio
    tuning = (1.0 if odds else 0.0) if values.sft_loss_ratio is None else values.sft_loss_ratio
    return preference, tuning
