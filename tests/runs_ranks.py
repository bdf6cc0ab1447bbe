"""What the ranks of tests/runs.py do: make the material, and train."""

import contextlib
import importlib
import io
import json
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from tests.runs import FEW_PAIRS, FEW_PREFERENCES, SHORT_PAIRS, VOCABULARY

# Changes of a rehearsal's configuration. Wide: weights ten times as wide as usual, so that a frozen random head leaves
# room for a loss near 0.
MODELS = {
    "model": ("llama-rehearsal", {}),
    "wide": ("llama-rehearsal", {"initializer_range": 0.2}),
    "deep": ("llama-rehearsal", {"num_hidden_layers": 4}),
    "grouped": ("llama-rehearsal", {"num_key_value_heads": 2}),
    "tied": ("llama-rehearsal", {"tie_word_embeddings": True}),
    "large": ("llama-rehearsal", {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4}),
    "qwen2": ("qwen2-rehearsal", {}),
    "qwen3": ("qwen3-rehearsal", {}),
    "ernie4_5": ("ernie4_5-rehearsal", {}),
    "mixtral": ("mixtral-rehearsal", {}),
    "qwen2-moe": ("qwen2-moe-rehearsal", {}),
    "qwen3-moe": ("qwen3-moe-rehearsal", {}),
    "ernie4_5-moe": ("ernie4_5-moe-rehearsal", {}),
}
SIZES = {"vocab_size": VOCABULARY, "num_hidden_layers": 2, "intermediate_size": 128}


def make_material(directory: str) -> None:
    """Write models with a tokenizer, pairs, chats and preferences, the first in few-*, and corpus: random ids,
    23 samples of 32 tokens to train on and 12 to evaluate."""
    from data_tools.formats.tokens.indexed import IndexedWriter
    from data_tools.tokenizer import save_tokenizer, train_tokenizer
    from launch.families.named_configs import load_config
    from launch.rehearsal.materials import documents, write_dialogues
    from launch.training.model import save_random_model
    from tests.training.finetune_material import write_first

    root = Path(directory)
    write_dialogues(root, dev=64)
    write_first(root / "pairs", root / "few-pairs", FEW_PAIRS)
    write_first(root / "pairs", root / "short-pairs", SHORT_PAIRS, shortest=True)
    write_first(root / "preferences", root / "few-preferences", FEW_PREFERENCES)
    tokenizer = train_tokenizer(islice(documents(), 50), VOCABULARY)
    for name, (configuration, changes) in MODELS.items():
        file = root / f"{name}.json"
        file.write_text(json.dumps(load_config(configuration) | SIZES | changes))
        save_random_model(str(file), root / name)
        save_tokenizer(root / name, tokenizer)
    ids = np.random.default_rng(0)
    with IndexedWriter(root / "corpus", VOCABULARY) as corpus:
        for _ in range(20):
            corpus.add_document(ids.integers(0, VOCABULARY, size=58))


def train(script: str, argv: list[str], observers: list[str]) -> dict:
    """Train by a method as its script does, or run launch/commands/X.py by "commands.X": exit code, what it said, what
    was observed.

    observers: "module:function", called before; what they return is called at the end, for facts.
    """
    from launch.guard import guarded
    from launch.methods.registry import find_method
    from launch.train import train_method

    main = partial(train_method, script) if find_method(script) else importlib.import_module(f"launch.{script}").main

    found = []
    for observer in observers:
        module, _, name = observer.partition(":")
        found.append(getattr(importlib.import_module(module), name)())
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        exit_code = guarded(main, argv) or 0
    facts = {key: value for facts_of in found if facts_of and not exit_code for key, value in facts_of().items()}
    said = {"stdout": out.getvalue(), "stderr": " ".join(err.getvalue().split())}
    return {"exit_code": exit_code, **said, "facts": facts}


def train_all(script: str, jobs: list[list[str]]) -> list[dict]:
    """Train by a method again and again in one process."""
    return [train(script, argv, []) for argv in jobs]


def plain_sgd() -> None:
    """Adam divides by the gradient's own size, which hides constant factors in it; plain SGD hides nothing."""
    import paddle
    from paddlenlp.trainer import Trainer

    class PlainSGD(paddle.optimizer.SGD):
        def __init__(self, apply_decay_param_fun=None, **kwargs):
            super().__init__(**kwargs)

    Trainer.get_optimizer_cls_and_kwargs = staticmethod(lambda args: (PlainSGD, {}))
