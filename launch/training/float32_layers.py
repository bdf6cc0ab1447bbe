"""Norms and the output layer in float32, within a model whose weights are kept in half precision.

What they are sensitive to is a sum over many numbers: of squares in a norm, in the output layer of products whose
exponentials the loss takes. Weights stay in half precision and are widened while a layer computes.
"""

import paddle

NORMS = ("LayerNorm", "RMSNorm")
HEADS = ("LMHead", "ChatGLMHead")


class InFloat32:
    """Put before the class of a layer: it computes in float32, and answers in `answers_in`, None for float32."""

    answers_in: paddle.dtype | None = None

    def forward(self, hidden_states, *args, **kwargs):
        parameters = {name: one for name, one in self._parameters.items() if one is not None}
        wide = {name: _widened(one) for name, one in parameters.items()}
        vars(self).update(wide)  # found before the parameters of the same names
        try:
            with paddle.amp.auto_cast(False):
                outputs = super().forward(hidden_states.astype("float32"), *args, **kwargs)
                return outputs if self.answers_in is None else outputs.astype(self.answers_in)
        finally:
            for name in wide:
                del vars(self)[name]


def _widened(parameter: paddle.Tensor) -> paddle.Tensor:
    """In float32, and as divided by tensor parallel as it is."""
    wide = parameter.astype("float32")
    wide.is_distributed = getattr(parameter, "is_distributed", False)
    return wide


def norms_and_head_in_float32(model, dtype: str) -> str:
    """Let these layers of a model compute so; one line about it. dtype: of the model's weights."""
    if dtype == "float32":
        return "norms and output layer: float32, as all of the model"
    norms = [layer for layer in model.sublayers() if type(layer).__name__.endswith(NORMS)]
    heads = [layer for layer in model.sublayers() if type(layer).__name__.endswith(HEADS)]
    for layer in [*norms, *heads]:
        layer.__class__ = type(f"Float32{type(layer).__name__}", (InFloat32, type(layer)), {})
    for layer in norms:
        layer.answers_in = getattr(paddle, dtype)
    return f"norms and output layer: float32 ({len(norms)} norms, {len(heads)} output layer), all else {dtype}"
