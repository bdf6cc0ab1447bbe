"""Fine-tuning: dialogues of different lengths, whose responses alone count in the loss."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.methods.bounds import AT_LEAST_ONE, POSITIVE, SAMPLE
from launch.methods.method import ArgumentFiles, Fit, Flags, Method, RowArguments, RowKind, flag


@dataclass(frozen=True)
class FinetuningDataArguments(RowArguments):
    """The flags of dialogues."""

    prompt_column: str | None = flag(None, help="Key of the question in each row. Default: found in the first rows.")
    response_column: str | None = flag(None, help="Key of the answer in each row. Default: found in the first rows.")
    trained_answers: str = flag(
        "all",
        help="Answers of a chat that count in the loss: all, each as it is served, or the last.",
        choices=["all", "last"],
    )
    src_length: int = flag(1024, bounds=AT_LEAST_ONE, help="Tokens of a question, at most: its end is kept.")
    max_length: int = flag(2048, bounds=SAMPLE, help="Tokens of a sample, at most.")
    zero_padding: bool = flag(
        False, help="Pack several dialogues into each row of max_length tokens; none sees another. Less padding."
    )
    neftune: bool = flag(False, help="NEFTune: add uniform noise to the embeddings during training.")
    neftune_noise_alpha: float = flag(
        5.0, bounds=POSITIVE, help="NEFTune: the noise is at most this / sqrt(tokens of a row x hidden size)."
    )
    eval_with_do_generation: bool = flag(
        False, help="Evaluate by answers, too: BLEU and ROUGE, and what was said in OUTPUT/predictions."
    )


def _dialogues(values: Any) -> RowKind:
    from data_tools.dialogues.datasets import Columns, encode_rows
    from data_tools.dialogues.samples import DialogueDataset, sample_lines

    def encode(rows, encoding) -> tuple[DialogueDataset, list]:
        samples, faults = encode_rows(rows, encoding)
        return DialogueDataset(samples), faults

    columns = Columns(values.prompt_column, values.response_column)
    return RowKind("dialogue", "dialogue", columns, encode, sample_lines)


def _rehearsal_data(flags: Flags, materials: Path) -> dict[str, tuple[str, str]]:
    folder = materials / ("chats" if "chat_template" in flags else "pairs")
    return {"dataset_name_or_path": (str(folder), "made-up dialogues")}


FINETUNING = Method(
    name="finetuning",
    title="fine-tuning",
    full_title="fine-tuning of all parameters",
    script="finetune_generation",
    training="launch.training.finetune:Finetuning",
    arguments=(FinetuningDataArguments,),
    metrics=("loss", "perplexity", "accuracy", "bleu", "rouge1", "rouge2", "rougel"),
    rehearsal_data=_rehearsal_data,
    row_kind=_dialogues,
    files=(ArgumentFiles("fine-tuning", frozenset({"dataset_name_or_path", "src_length", "max_length"}), stage="SFT"),),
    fits={
        "full": Fit("llama-7b/finetune.sh", smaller=("full-1gpu", "lora", "qlora")),
        "full-1gpu": Fit("llama3-8b/finetune-1gpu.sh", smaller=("lora", "qlora")),
        "lora": Fit("llama-7b/lora.sh", smaller=("qlora",)),
        "qlora": Fit("llama-7b/lora.sh", "--weight_quantize_algo nf4 --weight_double_quant 1"),
        "prefix": Fit("llama-7b/lora.sh", "--lora 0 --prefix_tuning 1"),
    },
)
