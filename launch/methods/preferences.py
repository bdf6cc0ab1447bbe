"""Preference tuning: pairs of responses to a prompt, or single responses, and a loss of --loss_type (DPO, KTO ...)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.methods.bounds import AT_LEAST_ONE, NOT_NEGATIVE, SAMPLE
from launch.methods.method import ArgumentFiles, Fit, Flags, Method, RowArguments, RowKind, flag
from launch.methods.preference_flags import AUTO, COMPARES, KTO, REFERENCES, rows_of

UNQUANTIZED = "--weight_quantize_algo= --weight_double_quant="


@dataclass(frozen=True)
class PreferenceDataArguments(RowArguments):
    """The flags of pairs and single responses."""

    src_length: int = flag(
        1024, bounds=AT_LEAST_ONE, help="Tokens of a prompt, at most where a response needs the room: its end is kept."
    )
    max_length: int = flag(2048, bounds=SAMPLE, help="Tokens of a prompt with a response, at most.")
    zero_padding: bool = flag(
        False, help="Pack several pairs into two rows of max_length tokens; none sees another. Less padding."
    )


@dataclass(frozen=True)
class PreferenceArguments:
    """The flags of preference losses."""

    loss_type: str = flag(
        "sigmoid",
        help="The loss. Of pairs, sigmoid: DPO; hinge: SLiC; ipo: IPO; simpo: SimPO; or: ORPO; the last two need no "
        "reference. Of single responses, kto: KTO.",
        choices=list(COMPARES),
    )
    beta: float = flag(
        0.1,
        bounds={"above": 0, "most": 1000},
        help="How strongly the reference holds the policy; tau of IPO, beta of SimPO.",
    )
    label_smoothing: float = flag(
        0.0,
        bounds={"least": 0, "below": 0.5},  # from there on the loss prefers the rejected response
        help="sigmoid, simpo: the share of pairs that are taken to be the wrong way round.",
    )
    simpo_gamma: float = flag(
        0.5, bounds=NOT_NEGATIVE, help="simpo: by how much the chosen response's reward should be higher."
    )
    desirable_weight: float = flag(1.0, bounds=NOT_NEGATIVE, help="kto: the weight of desired responses, lambda_D.")
    undesirable_weight: float = flag(1.0, bounds=NOT_NEGATIVE, help="kto: the weight of undesired responses, lambda_U.")
    pref_loss_ratio: float | None = flag(
        None, bounds=NOT_NEGATIVE, help="The weight of the preference loss. Default: 1, of ORPO 0.1, its lambda."
    )
    sft_loss_ratio: float | None = flag(
        None,
        bounds=NOT_NEGATIVE,
        help="The weight of the chosen response's own mean -ln p beside it. Default: 0, of ORPO 1.",
    )
    reference_free: bool = flag(False, help="Without a reference, which then finds all responses equally likely.")
    reference: str = flag(
        AUTO,
        help="Where the log-probabilities of the model before training come from. adapter_off: from the model without "
        "its LoRA; copy: from a second copy of it; precomputed: computed once before the first step and kept in "
        "OUTPUT/reference, without a copy; auto: adapter_off with --lora 1, else copy.",
        choices=list(REFERENCES),
    )


def _preferences(values: Any) -> RowKind:
    from data_tools.preferences.datasets import encode_preference_rows, pair_lines, unpaired
    from data_tools.preferences.forms import PreferenceColumns
    from data_tools.preferences.samples import DesiredDataset, PairDataset

    def pairs(rows, encoding) -> tuple[PairDataset, list]:
        samples, dropped, faults = encode_preference_rows(rows, encoding)
        return PairDataset(samples, dropped), faults

    def responses(rows, encoding) -> tuple[DesiredDataset, list]:
        samples, dropped, faults = encode_preference_rows(unpaired(rows), encoding)
        return DesiredDataset(samples, dropped, encoding.max_length), faults

    paired = values.loss_type != KTO
    encode, samples = (pairs, "pair") if paired else (responses, "response")
    return RowKind("preference", samples, PreferenceColumns(paired=paired), encode, pair_lines)


def _rehearsal_data(flags: Flags, materials: Path) -> dict[str, tuple[str, str]]:
    return {"dataset_name_or_path": (str(materials / "preferences"), "made-up preferences")}


PREFERENCES = Method(
    name="preferences",
    title="preferences",
    script="run_dpo",
    training="launch.training.preference_tuning:PreferenceTuning",
    arguments=(PreferenceDataArguments, PreferenceArguments),
    metrics=("loss", "accuracy", "rewards_chosen", "rewards_rejected", "rewards_margin", "kl"),
    rehearsal_data=_rehearsal_data,
    row_kind=_preferences,
    rows_per_sample=lambda values: rows_of(values.loss_type),
    token_loss=False,
    files=(
        ArgumentFiles(
            "DPO",
            frozenset({"loss_type", "simpo_gamma", "pref_loss_ratio", "sft_loss_ratio", "reference_free"}),
            stage="DPO",
        ),
        ArgumentFiles("KTO", frozenset({"beta", "desirable_weight", "undesirable_weight"}), {"loss_type": [KTO]}),
    ),
    fits={
        "dpo": Fit("llama3-8b/dpo.sh", smaller=("dpo-lora", "dpo-qlora")),
        "dpo-lora": Fit("qwen2.5-7b/dpo-lora.sh", UNQUANTIZED, smaller=("dpo-qlora",)),
        "dpo-qlora": Fit("qwen2.5-7b/dpo-lora.sh"),
        "kto-lora": Fit("qwen3-8b/kto-lora.sh", UNQUANTIZED),
    },
)
