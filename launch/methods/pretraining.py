"""Pretraining: samples of equal length from files of token ids, and the loss of the model's own class."""

from dataclasses import MISSING, dataclass
from pathlib import Path

from launch.methods.bounds import AT_LEAST_ONE, UNSTATED_OR_STEPS
from launch.methods.method import ArgumentFiles, Fit, Flags, Method, flag


@dataclass(frozen=True)
class DataArguments:
    """The flags of files of token ids."""

    input_dir: list[str] = flag(
        MISSING, help="Directory with .bin/.idx files, one prefix, or weights and prefixes: 0.7 a 0.3 b."
    )
    split: str = flag("949,50,1", help="Shares of train, valid and test documents.")
    max_seq_length: int = flag(2048, bounds=AT_LEAST_ONE, help="Tokens a sample.")
    data_cache: str | None = flag(None, help="Where sample indices are cached. Default: index_cache beside the data.")
    max_eval_samples: int = flag(
        1000, bounds=UNSTATED_OR_STEPS, help="Evaluate on this many samples of the valid split at most; -1: on all."
    )


def _rehearsal_data(flags: Flags, materials: Path) -> dict[str, tuple[str, str]]:
    return {"input_dir": (str(materials / "data"), "made-up text"), "max_eval_samples": ("32", "a short evaluation")}


PRETRAINING = Method(
    name="pretraining",
    title="pretraining",
    full_title="pretraining",
    script="run_pretrain",
    training="launch.training.pretrain:Pretraining",
    arguments=(DataArguments,),
    data_flag="input_dir",
    length_flag="max_seq_length",
    metrics=("loss", "perplexity"),
    rehearsal_data=_rehearsal_data,
    own_loss=False,
    files=(ArgumentFiles("pretraining", frozenset({"input_dir", "max_seq_length"}), forgives_metric=True, stage="PT"),),
    fits={"pretrain": Fit("llama-7b/pretrain.sh")},
)
