"""A frozen word embedding in host memory: `--offload_embedding 1`, with an adapter on one process a model.

A batch reads as many rows of the table as it has tokens; only these are copied to the device.
"""

import numpy as np
import paddle

from launch.checkpoint.stored_tensor import convert

NAME = "embed_tokens.weight"


def to_host(parameter: paddle.Tensor) -> None:
    """Move the values of a table to host memory."""
    parameter.on_host = parameter.numpy()
    parameter._clear_data()


def use_host_embedding(model) -> list[str]:
    """Make the word embedding of a model read its rows from host memory; return a line about it."""
    [layer] = [layer for name, layer in model.named_sublayers() if f"{name}.weight".endswith(f".{NAME}")]
    parameter = layer._parameters.pop("weight")
    if not hasattr(parameter, "on_host"):  # of a model with random weights
        to_host(parameter)
    layer.table, layer.dtype_of_rows = parameter.on_host, str(parameter.dtype).removeprefix("paddle.")
    layer.__class__ = type(f"Host{type(layer).__name__}", (HostEmbedding, type(layer)), {})
    return [f"word embedding: in host memory, {layer.table.nbytes / 1e9:.2f} GB"]


class HostEmbedding:
    """A base class to put before a word embedding's own.

    Attributes:
        table: [vocabulary, hidden]; bfloat16 as uint16.
        dtype_of_rows: By its name.
    """

    table: np.ndarray
    dtype_of_rows: str

    def forward(self, ids: paddle.Tensor) -> paddle.Tensor:
        """Return the rows of ids [...], [..., hidden]. float32 on the way: it holds the narrower dtypes exactly."""
        rows = convert(self.table[ids.numpy()], self.dtype_of_rows, "float32")
        return paddle.to_tensor(rows).astype(self.dtype_of_rows)  # pyright: ignore[reportArgumentType]  # one of Paddle's
