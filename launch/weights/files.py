"""The tensors of a Hugging Face model directory, from the headers of its files: no tensor is read."""

from pathlib import Path

from launch.checkpoint.safetensors_reader import read_header
from launch.checkpoint.stored_tensor import StoredTensor
from launch.checkpoint.weight_files import read_indexed
from launch.errors import UserError
from launch.weights.torch_reader import read_torch

# In the order in which transformers looks for them.
FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def find_torch_weights(directory: Path) -> dict[str, StoredTensor]:
    """Tensors by name. Raises UserError where there are none, a file is missing or damaged, or they are Paddle's."""
    for name in FILES:
        path = directory / name
        if path.is_file():
            return read_indexed(path, _read_file) if path.suffix == ".json" else _read_file(path)
    raise UserError(f"{directory}: no weights: looked for {', '.join(FILES)}.")


def _read_file(path: Path) -> dict[str, StoredTensor]:
    if path.suffix == ".bin":
        return read_torch(path)
    tensors, metadata = read_header(path)
    if metadata.get("format", "pt") != "pt":
        raise UserError(
            f"{path}: not in Hugging Face's layout (format {metadata['format']!r}, theirs is 'pt'). Weights of "
            "PaddleNLP need no import: --model_name_or_path takes the directory."
        )
    return tensors
