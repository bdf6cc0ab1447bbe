"""What the trainings of the planner's tests read: models of all families, token files, dialogues of full length."""

import json
from itertools import islice
from pathlib import Path

import numpy as np

from data_tools.formats.tokens.indexed import IndexedWriter
from launch.families.named_configs import load_config
from launch.families.registry import FAMILIES

VOCABULARY = 1024
SEQUENCE_LENGTH = 64
MARKS = tuple(dict.fromkeys(token for name in ("chatglm", "glm") for token in FAMILIES[name].answer_symbols))


def make_material(root: Path) -> None:
    """root/corpus, root/tokenizer, root/dialogues, root/preferences."""
    from data_tools.tokenizer import save_tokenizer, train_tokenizer
    from launch.rehearsal.materials import documents

    ids = np.random.default_rng(0)
    with IndexedWriter(root / "corpus", VOCABULARY) as corpus:
        for _ in range(400):
            corpus.add_document(ids.integers(0, VOCABULARY, size=100))
    save_tokenizer(root / "tokenizer", train_tokenizer(islice(documents(), 50), VOCABULARY, symbols=MARKS))
    dialogues = [{"src": f"question {number} " * 40, "tgt": f"answer {number} " * 40} for number in range(64)]
    pairs = [
        {"prompt": row["src"], "chosen": row["tgt"], "rejected": f"no {number} " * 80}
        for number, row in enumerate(dialogues)
    ]
    for name, rows in (("dialogues", dialogues), ("preferences", pairs)):
        (root / name).mkdir()
        for split in ("train", "dev"):
            (root / name / f"{split}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def model(root: Path, family: str, **sizes) -> Path:
    """A directory with the configuration of the family's rehearsals, weights to be random."""
    directory = root / "-".join([family, *map(str, sizes.values())])
    directory.mkdir(exist_ok=True)
    tokens = {"bos_token_id": 1, "eos_token_id": 2}  # the tokenizer's
    (directory / "config.json").write_text(json.dumps(load_config(f"{family}-rehearsal") | tokens | sizes))
    return directory


def flags(root: Path, directory: Path, output: Path, script: str) -> dict[str, str]:
    """Return flags of three steps on samples that are all as long as possible."""
    shared = {
        "model_name_or_path": directory,
        "continue_training": 0,
        "output_dir": output,
        "max_steps": 3,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "save_strategy": "no",
        "do_train": 1,
        "device": "cpu",
        "cpu_fast": "off",
        "use_fused_rms_norm": "off",  # whether it is built here or not
        "report_to": "none",
        "unified_checkpoint": 1,
    }
    lengths = {"src_length": SEQUENCE_LENGTH // 2, "max_length": SEQUENCE_LENGTH}
    rows = root / ("preferences" if script in ("run_dpo", "run_reward") else "dialogues")
    data = (
        {"input_dir": root / "corpus", "split": "8,2,0", "max_seq_length": SEQUENCE_LENGTH}
        if script == "run_pretrain"
        else {"dataset_name_or_path": rows, "tokenizer_name_or_path": root / "tokenizer", **lengths}
    )
    return {name: str(value) for name, value in (shared | data).items()}
