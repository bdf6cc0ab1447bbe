"""Rotary positions that are scaled: cosines and sines by launch/models/rotary_scaling.py.

    attention.rotary_emb = ScaledRotaryEmbedding(head_size, theta, scaling, positions)
    cos, sin = attention.rotary_emb(x, seq_len=40)  # [1, 40, 1, head_size], in x's dtype

Takes the place of LlamaRotaryEmbedding and Qwen2RotaryEmbedding of paddlenlp. Layers with the same numbers share their
tables, which grow with the sequences.
"""

from weakref import WeakValueDictionary

import paddle

from launch.models.rotary_scaling import attention_factor, frequency_length, inverse_frequencies, rotary_rows


class Tables:
    """Cosines and sines [1, rows, 1, size] in float32.

    No layer has them for a buffer: a cast of one model would round them for all.
    """

    def __init__(self, size: int, theta: float, scaling: dict, positions: int):
        self.size, self.theta, self.scaling, self.positions = size, theta, scaling, positions
        self.rows = self.made_for = 0
        self.cosine = self.sine = None

    def first(self, length: int) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return the tables of positions 0 to length - 1, in a sequence of this length."""
        made_for = frequency_length(self.scaling, length)
        if length > self.rows or made_for != self.made_for:
            self.made_for, self.rows = made_for, rotary_rows(length, max(self.positions, length))
            with paddle.no_grad(), paddle.amp.auto_cast(False):
                self._compute()
        assert self.cosine is not None and self.sine is not None
        return self.cosine[:, :length], self.sine[:, :length]

    def _compute(self) -> None:
        frequencies = inverse_frequencies(self.size, self.theta, self.scaling, self.made_for)
        places = paddle.arange(self.rows, dtype="float32").unsqueeze(1)
        angles = places * paddle.to_tensor(frequencies, dtype="float32")
        angles = paddle.concat([angles, angles], axis=-1)[None, :, None, :]
        factor = attention_factor(self.scaling)
        self.cosine, self.sine = paddle.cos(angles) * factor, paddle.sin(angles) * factor


_shared: WeakValueDictionary[tuple, Tables] = WeakValueDictionary()  # as long as a layer uses them


class ScaledRotaryEmbedding(paddle.nn.Layer):
    """Rotary positions that are scaled.

    Attributes:
        size: Elements of a head.
        theta: rope_theta.
        scaling: As scaling_of() gives it.
        positions: The number that the model can take.
    """

    def __init__(self, size: int, theta: float, scaling: dict, positions: int):
        super().__init__()
        self.numbers = size, theta, scaling, positions
        self.tables: Tables | None = None

    def forward(self, x: paddle.Tensor, seq_len: int) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return cosines and sines [1, seq_len, 1, size] on the device and in the dtype of x."""
        if self.tables is None:
            size, theta, scaling, positions = self.numbers
            key = size, theta, tuple(sorted(scaling.items())), positions, str(x.place)
            self.tables = _shared.get(key) or _shared.setdefault(key, Tables(*self.numbers))
        cosine, sine = self.tables.first(seq_len)
        return cosine.astype(x.dtype), sine.astype(x.dtype)


def put_scaled_positions(attention: paddle.nn.Layer, config, size: int) -> None:
    """Replace the layer's rotary_emb where its configuration scales positions. size: elements of a head."""
    if scaling := getattr(config, "rope_scaling", None):
        numbers = size, config.rope_theta, scaling, config.max_position_embeddings
        attention.rotary_emb = ScaledRotaryEmbedding(*numbers)
