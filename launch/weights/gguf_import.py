"""Import of a GGUF file, as of a Hugging Face directory: its metadata give the configuration and the tokenizer.

Memory: one tensor in float32, and what it is packed in. Packed tensors become float32, whose values are exactly those
that llama.cpp computes with.
"""

import json
import tempfile
from pathlib import Path

from launch.families.registry import parameters, their_name
from launch.weights.conversion import our_config
from launch.weights.gguf_file import read_gguf
from launch.weights.gguf_names import huggingface_tensors, read_config
from launch.weights.gguf_tokenizer import write_tokenizer
from launch.weights.model_directories import GENERATION, Imported, import_model


def import_gguf(path: Path, target: Path, dtype: str | None, shard_bytes: int) -> Imported:
    """Write `target`, a model directory of ours. dtype: of the weights; None: as they are, packed ones in float32.

    Raises UserError, and leaves nothing behind, where the file is none, is damaged, or holds what is not supported.
    """
    file = read_gguf(path)
    theirs = read_config(file)
    config = our_config(theirs, str(path))
    stored = huggingface_tensors(
        file, theirs, [their_name(one.name, config["model_type"]) for one in parameters(config)]
    )
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder)
        write_tokenizer(file, texts)
        ends = {key: value for key, value in theirs.items() if key == "eos_token_id"}
        (texts / GENERATION).write_text(json.dumps(ends) + "\n", encoding="utf-8")
        return import_model(theirs, path, stored, texts, target, dtype, shard_bytes)
